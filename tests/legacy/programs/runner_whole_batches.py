"""A reader of whole batches of several lengths, from an object with next_batch, with a dropout rate that steps feed."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

WIDTH = 3


class Digits(object):
    def __init__(self):
        self.rng = np.random.RandomState(4)

    def next_batch(self, count):
        x = self.rng.rand(count + self.rng.randint(3), WIDTH)
        return x, x.sum(axis=1)


class BatchReader(object):
    def __init__(self, coord):
        self.coord = coord
        self.threads = []
        self.x_in = tf.placeholder(tf.float32, [None, WIDTH])
        self.y_in = tf.placeholder(tf.float32, [None])
        self.queue = tf.PaddingFIFOQueue(8, dtypes=[tf.float32, tf.float32], shapes=[[None, WIDTH], [None]])
        self.enqueue_op = self.queue.enqueue([self.x_in, self.y_in])

    def next(self):
        x, y = self.queue.dequeue()
        return x, y

    def run(self, sess):
        done = False
        while not done:
            if self.coord.should_stop():
                done = True
                break
            x, y = digits.next_batch(4)
            sess.run(self.enqueue_op, feed_dict={self.x_in: x, self.y_in: y})

    def start_threads(self, sess, n_threads=1):
        for _ in range(n_threads):
            thread = threading.Thread(target=self.run, args=(sess,))
            thread.daemon = True
            thread.start()
            self.threads.append(thread)
        return self.threads


digits = Digits()
coord = tf.train.Coordinator()
reader = BatchReader(coord)
x, y = reader.next()
scale = tf.placeholder(tf.float32, [])
weights = tf.get_variable("weights", [WIDTH, 1], initializer=tf.zeros_initializer())
loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)[:, 0] * scale - y))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
records = tf.shape(x)[0]

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    reader.start_threads(sess)
    for step in range(5):
        value, count, _ = sess.run([loss, records, train], feed_dict={scale: 1.0})
        print("step %d records %d loss %.5f" % (step, count, value))
    coord.request_stop()
