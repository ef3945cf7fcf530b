"""A loop that ends with its data, and leaves a batch in the area."""
import tensorflow as tf
from tensorflow.python.ops import data_flow_ops


class Trainer(object):
    def __init__(self, dataset):
        self.batch = tf.data.make_one_shot_iterator(dataset).get_next()
        self.stage = data_flow_ops.StagingArea([tf.int64])
        self.put = self.stage.put([self.batch])
        self.loss = tf.reduce_sum(self.stage.get()[0])

    def train(self):
        with tf.control_dependencies([self.put]):
            step = tf.identity(self.loss)
        with tf.Session() as sess:
            sess.run(self.put)
            while True:
                try:
                    sess.run(step)  # bad: STG122
                except tf.errors.OutOfRangeError:
                    break


Trainer(tf.data.Dataset.range(10)).train()
