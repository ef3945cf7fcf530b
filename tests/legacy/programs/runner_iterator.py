"""A runner with its threads' number as an attribute, that gets the method of an object that yields its batches."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf


class Numbers(object):
    def __init__(self, stop):
        self.stop = stop

    def batches(self):
        for start in range(0, self.stop, 10):
            yield np.arange(start, start + 10), np.arange(start, start + 10) * 0.5


class NumberRunner(object):
    def __init__(self, iterator, shape, batch_size, n_threads=1):
        self.iterator = iterator
        self.n_threads = n_threads
        self.batch_size = batch_size
        shape = [None] + shape
        self.number = tf.placeholder(dtype=tf.int32, shape=shape)
        self.half = tf.placeholder(dtype=tf.float32, shape=shape)
        self.queue = tf.RandomShuffleQueue(
            shapes=[shape[1:], shape[1:]],
            dtypes=[tf.int32, tf.float32],
            capacity=batch_size * n_threads * 4,
            min_after_dequeue=0,
        )
        self.enqueue_op = self.queue.enqueue_many([self.number, self.half])

    def get_inputs(self):
        number, half = self.queue.dequeue_many(self.batch_size)
        return number, half

    def thread_main(self, sess):
        for number, half in self.iterator():
            sess.run(self.enqueue_op, feed_dict={self.number: number, self.half: half})

    def start_threads(self, sess):
        for n in range(self.n_threads):
            thread = threading.Thread(target=self.thread_main, args=(sess,))
            thread.daemon = True
            thread.start()


source = Numbers(40)
runner = NumberRunner(source.batches, [], 8, n_threads=3)
number, half = runner.get_inputs()

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    runner.start_threads(sess)
    seen = []
    for step in range(15):
        numbers, halves = sess.run([number, half])
        assert (numbers * 0.5 == halves).all()
        seen += numbers.tolist()
    print("%d records, each of %d thrice: %s" % (len(seen), max(seen) + 1, sorted(seen) == sorted(3 * list(range(40)))))
    print(numbers.dtype, halves.dtype)
