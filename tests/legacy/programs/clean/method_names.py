"""Methods and functions whose names are those of TensorFlow's: they are not called by sess.run() or tf.train.X()."""
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def train(rate):
    return tf.train.GradientDescentOptimizer(rate)


class Benchmark(object):
    def __init__(self):
        self.area = staging.StagingArea([tf.float32], capacity=1)
        self.put = self.area.put([tf.random_normal([4])])
        (self.x,) = self.area.get()
        self.step = self.run(tf.get_variable("w", [4], initializer=tf.zeros_initializer()))

    def run(self, weight):
        return train(0.1).minimize(tf.reduce_sum(tf.square(self.x - weight)))

    def benchmark(self, sess):
        sess.run(tf.global_variables_initializer())
        for _ in range(10):
            rate = tf.train.global_step(sess, tf.train.get_or_create_global_step())
            sess.run(self.put)
            sess.run(self.step)
            print(rate)


with tf.Session() as session:
    Benchmark().benchmark(session)
