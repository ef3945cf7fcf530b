"""A trainer with mistakes in building ops, in its threads and at its end."""
import threading

import numpy as np
import tensorflow as tf
from tensorflow.contrib import staging

BATCH = 16
images_in = tf.placeholder(tf.float32, [BATCH, 4])
labels_in = tf.placeholder(tf.int32, [BATCH])


class Trainer(object):
    def __init__(self):
        self.area = staging.StagingArea([tf.float32, tf.int64], [[BATCH, 4], [BATCH]])  # bad: STG106
        self.put_op = self.area.put([images_in, labels_in])  # bad: STG109
        self.images, self.labels = self.area.get()
        self.weights = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer())
        self.loss = tf.reduce_mean(tf.matmul(self.images, self.weights))

    def feed(self, sess):
        buffer = np.zeros((BATCH, 4), np.float32)
        labels = np.zeros(BATCH, np.int32)
        while True:
            buffer[:] = np.random.rand(BATCH, 4)
            sess.run(self.put_op, feed_dict={images_in: buffer, labels_in: labels})  # bad: STG114

    def train(self, steps):
        with tf.Session() as sess:
            thread = threading.Thread(target=self.feed, args=(sess,))  # bad: STG112
            thread.daemon = True
            thread.start()  # bad: STG110
            sess.run(tf.global_variables_initializer())
            for step in range(steps):
                optimizer = tf.train.GradientDescentOptimizer(0.1)  # bad: STG102
                sess.run(optimizer.minimize(self.loss))  # bad: STG102


Trainer().train(100)
