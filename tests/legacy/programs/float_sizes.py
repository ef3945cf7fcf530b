"""Sizes that are floats, as 8 / 2 of Python 2 became: taken where they equal an integer, and refused where not."""
from __future__ import division, print_function

import numpy as np
import tensorflow as tf

HALF = 8 / 2
inputs = lambda: tf.zeros([2, 3, 4])
picture = lambda: tf.zeros([1, 4, 4, 2])
rnn_cell, contrib_rnn = tf.nn.rnn_cell, tf.contrib.rnn
seq2seq = tf.contrib.seq2seq


def outputs(make):
    return lambda: tf.nn.dynamic_rnn(make(), inputs(), dtype=tf.float32)[0]


def with_shape(shape):
    tensor = tf.placeholder(tf.float32)
    tensor.set_shape(shape)
    return tensor


def variables(cell):
    cell.build([2, 4])
    return [variable.shape.as_list() for variable in cell.variables]


SIZES = {
    "Dimension": lambda: [tf.Dimension(each) for each in (HALF, np.float32(4), np.float64(4), np.array(4.0), "4")],
    "Dimension: a part": lambda: tf.Dimension(4.5),
    "Dimension: nan": lambda: tf.Dimension(float("nan")),
    "Dimension: negative": lambda: tf.Dimension(-4.0),
    "Dimension: two": lambda: tf.Dimension(np.array([4.0, 4.0])),
    "Dimension: None": lambda: tf.Dimension(None),
    "arithmetic": lambda: [tf.Dimension(8) // 2.0, tf.Dimension(8) * 2.0, 2.0 * tf.Dimension(8), tf.Dimension(8) - 1.0],
    "division": lambda: tf.Dimension(8) / 2,
    "times a part": lambda: tf.Dimension(8) * 0.5,
    "comparison": lambda: [tf.Dimension(8) == 8.0, tf.Dimension(8) < 9.0, tf.zeros([4]).shape == [HALF]],
    "TensorShape": lambda: [tf.TensorShape([None, HALF]), tf.TensorShape(HALF), tf.TensorShape(np.array([2.0, 3.0]))],
    "TensorShape: a part": lambda: tf.TensorShape([4.5]),
    "is_compatible_with": lambda: tf.TensorShape([4]).is_compatible_with([HALF]),
    "placeholder": lambda: tf.placeholder(tf.float32, [None, HALF]),
    "placeholder: a part": lambda: tf.placeholder(tf.float32, [None, 4.5]),
    "set_shape": lambda: with_shape([2, HALF]),
    "ensure_shape": lambda: tf.ensure_shape(tf.placeholder(tf.float32), [HALF]),
    "get_variable": lambda: tf.get_variable("v", [HALF, 3]),
    "get_variable: a part": lambda: tf.get_variable("v", [4.5]),
    "get_variable: zeros": lambda: tf.get_variable("v", [HALF], initializer=tf.zeros_initializer()),
    "zeros": lambda: [tf.zeros([2, HALF]).shape, tf.zeros(HALF).shape, tf.ones(shape=HALF).shape],
    "constant": lambda: tf.constant(0.0, shape=[2, HALF]),
    "reshape": lambda: tf.reshape(tf.zeros([8]), [-1, HALF]),
    "one_hot": lambda: tf.one_hot([1], HALF),
    "StagingArea": lambda: tf.contrib.staging.StagingArea([tf.float32], [[HALF]]).shapes,
    "from_generator": lambda: tf.data.Dataset.from_generator(list, tf.float32, [HALF]).output_shapes,
    "batch": lambda: tf.data.Dataset.range(8).batch(HALF).output_shapes,
    "max_pool": lambda: tf.nn.max_pool(picture(), [1, 2.0, 2.0, 1], [1, 2.0, 2.0, 1], "SAME"),
    "LSTMCell": outputs(lambda: rnn_cell.LSTMCell(HALF)),
    "LSTMCell: a part": outputs(lambda: rnn_cell.LSTMCell(4.5)),
    "LSTMCell: variables": lambda: variables(rnn_cell.LSTMCell(HALF)),
    "GRUCell": outputs(lambda: rnn_cell.GRUCell(HALF)),
    "LSTMBlockCell": outputs(lambda: contrib_rnn.LSTMBlockCell(HALF)),
    "LSTMBlockFusedCell": lambda: contrib_rnn.LSTMBlockFusedCell(HALF)(inputs(), dtype=tf.float32)[0],
    "BahdanauAttention": lambda: seq2seq.BahdanauAttention(HALF, inputs()).keys,
    "dense": lambda: tf.layers.dense(inputs(), HALF),
    "dense: quotient": lambda: tf.layers.dense(inputs(), inputs().shape[2].value / 2),
    "conv2d": lambda: tf.layers.conv2d(picture(), HALF, 2),
    "conv2d: a part": lambda: tf.layers.conv2d(picture(), 4.5, 2),
    "conv2d_transpose: a part": lambda: tf.layers.conv2d_transpose(picture(), 4.5, 2),
    "keras.Conv2D: a part": lambda: tf.keras.layers.Conv2D(4.5, 2)(picture()),
    "slim.conv2d: a part": lambda: tf.contrib.slim.conv2d(picture(), 4.5, [2, 2]),
    "dense: a part": lambda: tf.layers.dense(inputs(), 4.5),
    "add_variable": lambda: tf.layers.Layer().add_variable("w", [HALF]),
    "keras: input_dim": lambda: tf.keras.Sequential([tf.keras.layers.Dense(2, input_dim=HALF)]).output_shape,
}

for name in sorted(SIZES):
    tf.reset_default_graph()
    try:
        made = SIZES[name]()
    except (TypeError, ValueError, OverflowError) as error:
        made = type(error).__name__
    print(name + ":", getattr(made, "shape", made))
