"""The losses of tf.get_variable's regularizers: each is one tensor, and random ops behind them keep their seeds."""
from __future__ import print_function

import tensorflow as tf

calls = []


def regularizer(weights):
    calls.append(weights.op.name)
    return 0.1 * tf.nn.l2_loss(weights)


tf.set_random_seed(7)
ones = tf.ones_initializer()
with tf.variable_scope("net", regularizer=regularizer):
    whole = tf.get_variable("whole", [2, 3], initializer=ones)
    parts = tf.get_variable("parts", [4, 3], initializer=ones, partitioner=tf.fixed_size_partitioner(2))
    none = tf.get_variable("none", [2], initializer=ones, regularizer=tf.no_regularizer)
with tf.variable_scope("net", reuse=True):
    again = tf.get_variable("whole", regularizer=regularizer)
noise = tf.random_normal([3])
losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
total = tf.losses.get_regularization_loss()
print(calls, [loss.name for loss in losses], [type(loss) is tf.Tensor for loss in losses])
print(len(tf.get_default_graph().get_operations()), len(set(losses)), again is whole)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print("%.4f" % sess.run(total), ["%.4f" % value for value in sess.run(noise)])
