"""A runner that enqueues single records, of doubles that the placeholders convert, through names of its own."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

COUNT = 24


def numbered(count):
    for number in range(count):
        yield number, np.array([number, number * 0.1, 1.0]), "record %d" % number


class RecordFeeder(object):
    def __init__(self, count, batch_size):
        self.count = count
        room = batch_size * 4
        self.point = tf.placeholder(tf.float32, shape=[3])
        self.number = tf.placeholder(tf.int32, shape=[])
        self.queue = tf.FIFOQueue(room, [tf.float32, tf.int32], shapes=[[3], []])
        self.enqueue_op = self.queue.enqueue((self.point, self.number))
        self.batch_size = batch_size

    def batch(self):
        return self.queue.dequeue_many(self.batch_size)

    def work(self, sess):
        for number, point, _ in numbered(self.count):
            feed = {self.number: number, self.point: point}
            sess.run(self.enqueue_op, feed_dict=feed)

    def start(self, sess):
        thread = threading.Thread(target=self.work, args=(sess,))
        thread.daemon = True
        thread.start()


feeder = RecordFeeder(COUNT, 6)
point, number = feeder.batch()
total = tf.reduce_sum(point, axis=0)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    feeder.start(sess)
    for step in range(4):
        numbers, sums = sess.run([number, total])
        print("step %d numbers %s sums %s %s" % (step, numbers.tolist(), np.round(sums, 4).tolist(), sums.dtype))
