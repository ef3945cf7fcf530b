"""A graph seed decides the numbers of all random ops, those of initializers and of shuffling included."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

tf.set_random_seed(1234)
noise = tf.random_normal([2, 2])
dice = tf.random_uniform([5], maxval=6, dtype=tf.int32)
weights = tf.get_variable("weights", [3], initializer=tf.truncated_normal_initializer(stddev=0.1))
glorot = tf.get_variable("glorot", [2])
queue = tf.RandomShuffleQueue(50, 0, [tf.int32], [[]])
fill = queue.enqueue_many([tf.range(10)])
taken = queue.dequeue_many(10)
batches = tf.data.Dataset.range(10).shuffle(10).make_one_shot_iterator().get_next()
area = tf.contrib.staging.StagingArea([tf.float32], [[2, 2]])
put = area.put([noise])
(got,) = area.get()

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put)
    for _ in range(2):
        print(" ".join("%.4f" % value for value in sess.run([got, put])[0].ravel()), sess.run(dice).tolist())
    for variable in (weights, glorot):
        print(" ".join("%.4f" % value for value in sess.run(variable)))
    sess.run(fill)
    print(sess.run(taken).tolist())
    print([int(sess.run(batches)) for _ in range(10)])
    sess.run(area.clear())
