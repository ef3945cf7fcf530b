"""The CustomRunner recipe: a feed thread, a RandomShuffleQueue, a Coordinator, an area behind it."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

RECORDS = 64
BATCH = 8


def data_iterator():
    for start in range(0, RECORDS, BATCH):
        ids = np.arange(start, start + BATCH)
        yield np.stack([ids, ids * 2], axis=1).astype(np.float32), ids.astype(np.int64)


class CustomRunner(object):
    """Manages the background threads needed to fill a queue full of data."""

    def __init__(self):
        self.dataX = tf.placeholder(dtype=tf.float32, shape=[None, 2])
        self.dataY = tf.placeholder(dtype=tf.int64, shape=[None])
        self.queue = tf.RandomShuffleQueue(
            shapes=[[2], []], dtypes=[tf.float32, tf.int64], capacity=RECORDS, min_after_dequeue=0, seed=7
        )
        self.enqueue_op = self.queue.enqueue_many([self.dataX, self.dataY])

    def get_inputs(self):
        return self.queue.dequeue_many(BATCH)

    def thread_main(self, sess):
        for dataX, dataY in data_iterator():
            sess.run(self.enqueue_op, feed_dict={self.dataX: dataX, self.dataY: dataY})

    def start_threads(self, sess, n_threads=1):
        threads = []
        for n in range(n_threads):
            t = threading.Thread(target=self.thread_main, args=(sess,))
            t.daemon = True
            t.start()
            threads.append(t)
        return threads


with tf.device("/cpu:0"):
    custom_runner = CustomRunner()
    images, labels = custom_runner.get_inputs()

area = tf.contrib.staging.StagingArea([tf.float32, tf.int64], [[BATCH, 2], [BATCH]])
put = area.put([images, labels])
staged_images, staged_labels = area.get()
consistent = tf.reduce_all(tf.equal(staged_images[:, 1], tf.cast(staged_labels, tf.float32) * 2))

with tf.Session() as sess:
    coord = tf.train.Coordinator()
    sess.run(tf.global_variables_initializer())
    tf.train.start_queue_runners(sess=sess, coord=coord)
    threads = custom_runner.start_threads(sess)
    sess.run(put)
    seen = []
    for step in range(RECORDS // BATCH):
        fetches = [staged_labels, consistent]
        if step < RECORDS // BATCH - 1:
            fetches.append(put)
        got = sess.run(fetches)
        seen.extend(got[0].tolist())
        print("step", step, "consistent", bool(got[1]))
    print("every record once:", sorted(seen) == list(range(RECORDS)), "sum", sum(seen))
    sess.run(area.clear())
    coord.request_stop()
    coord.join(threads)
