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

# Initial values behind layers that make other numbers of ops in TensorFlow 2.
tf.reset_default_graph()
tf.set_random_seed(3)
texts, images = tf.placeholder(tf.float32, [None, 5, 3]), tf.placeholder(tf.float32, [None, 4, 4, 2])
states, _ = tf.nn.bidirectional_dynamic_rnn(tf.nn.rnn_cell.GRUCell(2), tf.nn.rnn_cell.GRUCell(2), texts, dtype=tf.float32)
seen = [tf.layers.dense(tf.concat(states, 2), 3), tf.layers.conv2d_transpose(images, 3, 3, 2)]
seen += [tf.layers.dense(tf.layers.flatten(each), 2) for each in seen]
seen.append(tf.tensordot(tf.ones([2, 3]), tf.get_variable("last", [3, 4]), 1))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    print(*["%.4f" % session.run(tf.reduce_sum(variable)) for variable in tf.trainable_variables()])
    values = session.run(seen, {texts: np.ones([2, 5, 3]), images: np.ones([2, 4, 4, 2])})
    print(*["%.4f %s" % (value.sum(), value.shape) for value in values])
