"""Placeholders into an area, one warm-up put, then put and get in the same step."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

BATCHES = 6
rng = np.random.RandomState(1)
data = rng.rand(BATCHES, 8, 3).astype(np.float32)
target = data.dot(np.array([[1.0], [-2.0], [0.5]], np.float32))

x_in = tf.placeholder(tf.float32, [8, 3])
y_in = tf.placeholder(tf.float32, [8, 1])
area = tf.contrib.staging.StagingArea([tf.float32, tf.float32], shapes=[[8, 3], [8, 1]], capacity=2)
put = area.put([x_in, y_in])
x, y = area.get()

w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put, feed_dict={x_in: data[0], y_in: target[0]})
    for step in range(1, BATCHES):
        _, _, value = sess.run([train, put, loss], feed_dict={x_in: data[step], y_in: target[step]})
        print("step %d loss %.6f" % (step, value))
    value, _ = sess.run([loss, train])
    print("last loss %.6f" % value)
    print("left %d" % sess.run(area.size()))
