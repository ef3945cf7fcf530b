"""A runner with two threads, each of which goes through the data by itself, and a sum over all of it."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf


def data_iterator():
    for start in range(0, 40, 8):
        yield np.arange(start, start + 8, dtype=np.float32)


class CustomRunner(object):
    def __init__(self):
        self.numbers = tf.placeholder(tf.float32, [None])
        self.queue = tf.FIFOQueue(200, tf.float32, [[]])
        self.enqueue_op = self.queue.enqueue_many([self.numbers])

    def get_inputs(self):
        numbers = self.queue.dequeue_many(8)
        return numbers

    def thread_main(self, sess):
        for numbers in data_iterator():
            sess.run(self.enqueue_op, feed_dict={self.numbers: numbers})

    def start_threads(self, sess, n_threads=1):
        """Start the threads that feed the queue."""
        threads = []
        for n in range(n_threads):
            t = threading.Thread(target=self.thread_main, args=(sess,))
            t.daemon = True
            t.start()
            threads.append(t)
        return threads


runner = CustomRunner()
numbers = runner.get_inputs()
area = tf.contrib.staging.StagingArea([tf.float32], shapes=[[8]])
put = area.put([numbers])
(got,) = area.get()
total = tf.reduce_sum(got)

with tf.Session() as sess:
    threads = runner.start_threads(sess, n_threads=2)
    sess.run(put)
    sums = []
    for step in range(9):
        value, _ = sess.run([total, put])
        sums.append(value)
    sums.append(sess.run(total))
    print("sum %.1f of %d batches" % (sum(sums), len(sums)))
