"""Layer and instance normalization as programs wrote them themselves. TensorFlow 2.15 ended the process at some."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

SPELLINGS = (
    lambda x, mean, variance: gamma * ((x - mean) / ((variance + 1e-8) ** 0.5)) + beta,
    lambda x, mean, variance: gamma * (x - mean) / tf.sqrt(variance + 1e-8) + beta,
    lambda x, mean, variance: gamma * (x - mean) * tf.rsqrt(variance + 1e-8) + beta,
)
AXES = ([2], [-1], [1], [1, 2])
x = tf.placeholder(tf.float32, [4, 8, 16])
gamma = tf.get_variable("gamma", [16], initializer=tf.ones_initializer())
beta = tf.get_variable("beta", [16], initializer=tf.zeros_initializer())
normalized = [norm(x, *tf.nn.moments(x, axes, keep_dims=True)) for axes in AXES for norm in SPELLINGS]
loss = tf.add_n([tf.reduce_mean(tf.abs(each)) for each in normalized])
step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
feeds = {x: np.arange(4 * 8 * 16, dtype=np.float32).reshape(4, 8, 16) % 37}
for config in (None, tf.ConfigProto(allow_soft_placement=True)):
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        print(" ".join("%.4f" % sess.run(each, feeds).std() for each in normalized))
        for _ in range(3):
            print("%.4f" % sess.run([loss, step], feeds)[0])
