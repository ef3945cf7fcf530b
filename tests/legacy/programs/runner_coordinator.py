"""A reader that gets the coordinator, in the shape of speech programs, with an area behind it in a function."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf


def records():
    rng = np.random.RandomState(3)
    for _ in range(10):
        x = rng.rand(4, 3).astype(np.float32)
        yield x, x.sum(axis=1)


class Reader(object):
    def __init__(self, coord, queue_size=32):
        self.coord = coord
        self.threads = []
        self.sample = tf.placeholder(dtype=tf.float32, shape=None)
        self.target = tf.placeholder(dtype=tf.float32, shape=None)
        self.queue = tf.FIFOQueue(queue_size, ["float32", "float32"], shapes=[(3,), ()])
        self.enqueue = self.queue.enqueue_many([self.sample, self.target])

    def dequeue(self, num_elements):
        output = self.queue.dequeue_many(num_elements)
        return output

    def thread_main(self, sess):
        for sample, target in records():
            if self.coord.should_stop():
                break
            sess.run(self.enqueue, feed_dict={self.sample: sample, self.target: target})

    def start_threads(self, sess, n_threads=1):
        for _ in range(n_threads):
            thread = threading.Thread(target=self.thread_main, args=(sess,))
            thread.daemon = True
            thread.start()
            self.threads.append(thread)
        return self.threads


def build(x, y):
    weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)[:, 0] - y))
    return loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)


def main():
    coord = tf.train.Coordinator()
    reader = Reader(coord)
    x, y = reader.dequeue(8)
    area = tf.contrib.staging.StagingArea([tf.float32, tf.float32], shapes=[[8, 3], [8]])
    put_op = area.put([x, y])
    staged_x, staged_y = area.get()
    loss, step_op = build(staged_x, staged_y)
    init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
    sess = tf.Session()
    sess.run(init)
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    reader.start_threads(sess)
    try:
        sess.run(put_op)
        for step in range(4):
            value, _, _ = sess.run([loss, step_op, put_op])
            print("step %d loss %.5f" % (step, value))
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        coord.request_stop()
        coord.join(threads)


main()
