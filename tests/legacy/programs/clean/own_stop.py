"""Threads that stop by a flag or a closed queue of their own, and areas that other code puts into."""
import threading

import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from some_library import fill

x = tf.placeholder(tf.float32, [])
queue = tf.FIFOQueue(8, [tf.float32], [[]])
enqueue, dequeue = queue.enqueue([x]), queue.dequeue()
area = staging.StagingArea([tf.float32], capacity=1)
filled = fill(area)
(got,) = area.get()


class Feeder(object):
    def __init__(self, sess):
        self.stopped = False
        self.sess = sess
        self.thread = threading.Thread(target=self.loop)

    def loop(self):
        while not self.stopped:
            self.sess.run(enqueue, {x: 1.0})


with tf.Session() as sess:
    feeder = Feeder(sess)
    feeder.thread.start()
    sess.run(filled)
    print(sess.run([dequeue, got]))
    feeder.stopped = True
