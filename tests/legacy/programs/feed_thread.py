"""Trains on digits from a hand-written feed thread."""
import threading

import numpy as np
import tensorflow as tf

BATCH = 8
STEPS = 6


def batches():
    rng = np.random.RandomState(0)
    for _ in range(STEPS):
        x = rng.rand(BATCH, 4).astype(np.float32)
        yield x, x.sum(axis=1)


class CustomRunner(object):
    """Feeds a queue."""

    def __init__(self):
        self.x = tf.placeholder(tf.float32, [None, 4])
        self.y = tf.placeholder(tf.float32, [None])
        self.queue = tf.FIFOQueue(shapes=[[4], []], dtypes=[tf.float32, tf.float32], capacity=64)
        self.enqueue_op = self.queue.enqueue_many([self.x, self.y])

    def get_inputs(self):
        return self.queue.dequeue_many(BATCH)

    def thread_main(self, sess):
        for x, y in batches():
            sess.run(self.enqueue_op, feed_dict={self.x: x, self.y: y})

    def start_threads(self, sess):
        thread = threading.Thread(target=self.thread_main, args=(sess,))
        thread.daemon = True
        thread.start()
        return [thread]


runner = CustomRunner()
x, y = runner.get_inputs()
area = tf.contrib.staging.StagingArea([tf.float32, tf.float32], [[BATCH, 4], [BATCH]], capacity=1)
put = area.put([x, y])
staged_x, staged_y = area.get()

weights = tf.get_variable("weights", [4, 1], initializer=tf.zeros_initializer())
error = tf.matmul(staged_x, weights)[:, 0] - staged_y
loss = tf.reduce_mean(tf.square(error))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    coord = tf.train.Coordinator()
    threads = runner.start_threads(sess)
    sess.run(put)  # the warm-up
    for step in range(STEPS - 1):
        value, _, _ = sess.run([loss, train, put])
        print("step %d loss %.5f" % (step, value))
    value, _ = sess.run([loss, train])
    print("last loss %.5f" % value)
    coord.request_stop()
    coord.join(threads)
