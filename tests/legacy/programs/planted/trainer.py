"""A trainer with mistakes in the dtypes of its area, in the order of its start, and in its loop."""
import tensorflow as tf
from tensorflow.contrib import staging

BATCH = 16


def inputs(names):
    queue = tf.train.string_input_producer(names)
    _, line = tf.TextLineReader().read(queue)
    return tf.train.batch([line], BATCH)


class Trainer(object):
    def __init__(self, names):
        lengths = tf.cast(tf.strings.length(inputs(names)), tf.int32)
        area = staging.StagingArea([tf.int64], [[BATCH]])
        self.put_op = area.put([lengths])  # bad: STG109
        (self.lengths,) = area.get()
        self.weight = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        self.loss = self.weight * tf.reduce_mean(tf.cast(self.lengths, tf.float32))

    def train(self, steps):
        init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        with tf.Session() as sess:
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess, coord)  # bad: STG110
            sess.run(init)
            for step in range(steps):
                optimizer = tf.train.GradientDescentOptimizer(0.1)
                sess.run(optimizer.minimize(self.loss))  # bad: STG102
            coord.request_stop()
            coord.join(threads)


Trainer(["a.txt"]).train(100)
