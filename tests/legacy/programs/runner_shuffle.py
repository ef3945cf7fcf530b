"""A runner with a shuffle queue on the CPU, and a session that is closed by hand. All records are equal."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

BATCH_SIZE = 8


def data_iterator():
    while True:
        x = np.ones([16, 3], np.float32) * [1, 2, 3]
        yield x.astype(np.float32), np.full([16], 4, np.float32)


class CustomRunner(object):
    """Manages the background threads needed to enqueue data full of batches."""

    def __init__(self):
        self.dataX = tf.placeholder(dtype=tf.float32, shape=[None, 3])
        self.dataY = tf.placeholder(dtype=tf.float32, shape=[None])
        # The queue holds records.
        self.queue = tf.RandomShuffleQueue(
            shapes=[[3], []], dtypes=[tf.float32, tf.float32], capacity=200, min_after_dequeue=100
        )
        self.enqueue_op = self.queue.enqueue_many([self.dataX, self.dataY])

    def get_inputs(self):
        """Return tensors containing a batch."""
        x_batch, y_batch = self.queue.dequeue_many(BATCH_SIZE)
        return x_batch, y_batch

    def thread_main(self, sess):
        """Run in the thread."""
        for data_x, data_y in data_iterator():
            sess.run(self.enqueue_op, feed_dict={self.dataX: data_x, self.dataY: data_y})

    def start_threads(self, sess, n_threads=1):
        """Start the threads that feed the queue."""
        threads = []
        for n in range(n_threads):
            t = threading.Thread(target=self.thread_main, args=(sess,))
            t.daemon = True
            t.start()
            threads.append(t)
        return threads


def build(x, y):
    weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights)[:, 0] - y))
    return loss, tf.train.GradientDescentOptimizer(0.05).minimize(loss)


with tf.device("/cpu:0"):
    custom_runner = CustomRunner()
    x_batch, y_batch = custom_runner.get_inputs()

loss, train_op = build(x_batch, y_batch)
init = tf.global_variables_initializer()

sess = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=2))
sess.run(init)
tf.train.start_queue_runners(sess=sess)
custom_runner.start_threads(sess)
for step in range(5):
    _, loss_val = sess.run([train_op, loss])
    print("step %d loss %.5f" % (step, loss_val))
sess.close()
