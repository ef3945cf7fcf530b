"""An input that waits 20 ms for each batch, beside a step that takes about as long."""

import sys
import time

import numpy as np
import tensorflow as tf

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
made = iter(range(10000))


def load():
    time.sleep(0.02)
    return np.full([8, 4], next(made), np.float32)


def work(value):
    time.sleep(0.02)
    return value


tf.set_random_seed(1)
raw = tf.py_func(load, [], tf.float32)
raw.set_shape([8, 4])
x = tf.log1p(raw) + tf.random_uniform([8, 4], seed=2)
w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer())
loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
slow_loss = tf.py_func(work, [loss], tf.float32)
slow_loss.set_shape([])
train_op = tf.train.GradientDescentOptimizer(1e-3).minimize(loss)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(STEPS):
        if step == 5:
            began = time.time()
        value, _ = sess.run([slow_loss, train_op])
        print("%d %.6f" % (step, value))
    sys.stderr.write("%.2f ms a step\n" % (1000 * (time.time() - began) / (STEPS - 5)))
