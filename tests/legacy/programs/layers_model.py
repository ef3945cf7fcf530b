"""A small network of tf.layers on staged input, with contrib's initializer and regularizer."""
from __future__ import print_function

import numpy as np
import tensorflow as tf
from tensorflow.contrib.layers import l2_regularizer, xavier_initializer

rng = np.random.RandomState(0)
images = rng.rand(5, 16, 6).astype(np.float32)
classes = rng.randint(0, 3, (5, 16)).astype(np.int32)

image_in = tf.placeholder(tf.float32, [16, 6])
class_in = tf.placeholder(tf.int32, [16])
area = tf.contrib.staging.StagingArea([tf.float32, tf.int32], [[16, 6], [16]])
put = area.put([image_in, class_in])
x, y = area.get()

hidden = tf.layers.dense(
    x,
    8,
    activation=tf.nn.tanh,
    kernel_initializer=xavier_initializer(seed=11),
    kernel_regularizer=l2_regularizer(0.01),
)
logits = tf.layers.dense(hidden, 3, kernel_initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=12))
loss = tf.losses.sparse_softmax_cross_entropy(y, logits) + tf.losses.get_regularization_loss()
train = tf.train.AdamOptimizer(0.01).minimize(loss)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put, {image_in: images[0], class_in: classes[0]})
    for step in range(1, 6):
        value, _, _ = sess.run([loss, train, put], {image_in: images[step % 5], class_in: classes[step % 5]})
        print("step %d loss %.5f" % (step, value))
    sess.run(area.clear())
