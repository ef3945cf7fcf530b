"""A runner whose batch size and seed are arguments, with positional arguments of its queue and a loader in args."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf


def load(count, seed):
    rng = np.random.RandomState(seed)
    for _ in range(12):
        x = rng.rand(count, 3).astype(np.float32)
        yield x, x.sum(axis=1)


class DataQueue:
    def __init__(self, batch_size, seed=1, queue_size=64):
        self.batch_size = batch_size
        self.seed = seed
        with tf.device("/cpu:0"):
            self.images = tf.placeholder(tf.float32, [None, 3])
            self.labels = tf.placeholder(tf.float32, [None])
            self.queue = tf.FIFOQueue(queue_size, [tf.float32, tf.float32], [[3], []])
            self.enqueue = self.queue.enqueue_many([self.images, self.labels])

    def get_batch(self):
        return self.queue.dequeue_many(self.batch_size)

    def feed(self, session):
        for images, labels in load(self.batch_size, seed=self.seed):
            session.run(self.enqueue, feed_dict={self.images: images, self.labels: labels})

    def start(self, session):
        thread = threading.Thread(target=self.feed, args=(session,))
        thread.setDaemon(True)
        thread.start()


def build(x, y):
    weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)[:, 0] - y))
    return loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)


def main(_):
    data = DataQueue(6, queue_size=48)
    x, y = data.get_batch()
    loss, train = build(x, y)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        data.start(sess)
        for step in range(6):
            print("step %d loss %.5f" % (step, sess.run([loss, train])[0]))


if __name__ == "__main__":
    tf.app.run()
