"""A runner that draws batches in an endless loop until the coordinator stops."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(5)


def next_batch(count):
    x = np.cumsum(np.ones([count, 3], np.float32), axis=0) * 0.1
    return x, x.sum(axis=1)


class Feeder(object):
    def __init__(self, coord, batch_size):
        self.coord = coord
        self.batch_size = batch_size
        self.x = tf.placeholder(tf.float32, [None, 3])
        self.y = tf.placeholder(tf.float32, [None])
        self.queue = tf.FIFOQueue(capacity=32, dtypes=[tf.float32, tf.float32], shapes=[[3], []])
        self.enqueue_op = self.queue.enqueue_many([self.x, self.y])

    def get_inputs(self):
        return self.queue.dequeue_many(self.batch_size)

    def loop(self, sess):
        while not self.coord.should_stop():
            x, y = next_batch(self.batch_size)
            sess.run(self.enqueue_op, {self.x: x, self.y: y})

    def start(self, sess):
        self.thread = threading.Thread(target=self.loop, args=(sess,))
        self.thread.daemon = True
        self.thread.start()


def build(x, y):
    weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)[:, 0] - y))
    return loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)


coord = tf.train.Coordinator()
feeder = Feeder(coord, batch_size=4)
x, y = feeder.get_inputs()
loss, train = build(x, y)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    feeder.start(sess)
    for step in range(5):
        value, _ = sess.run([loss, train])
        print("step %d loss %.5f" % (step, value))
    coord.request_stop()
