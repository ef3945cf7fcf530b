"""The static shapes of conv2d_transpose, with batches of any size: a generator's layers reshape by them."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

noise = tf.placeholder(tf.float32, [None, 2, 2, 3])
weights = tf.constant(np.arange(3 * 3 * 4 * 3, dtype=np.float32).reshape(3, 3, 4, 3) / 50)
fixed = tf.nn.conv2d_transpose(noise, weights, [2, 4, 4, 4], [1, 2, 2, 1])
named = tf.nn.conv2d_transpose(noise, weights, output_shape=np.array([2, 4, 4, 4]), strides=[1, 2, 2, 1])
dynamic = tf.nn.conv2d_transpose(noise, weights, tf.stack([tf.shape(noise)[0], 4, 4, 4]), [1, 2, 2, 1])
for tensor in (fixed, named, dynamic):
    print(tensor.shape.as_list())
flat = tf.reshape(fixed + named, fixed.get_shape())
with tf.Session() as sess:
    print("%.4f" % sess.run(tf.reduce_mean(flat + dynamic), {noise: np.ones([2, 2, 2, 3], np.float32)}))
