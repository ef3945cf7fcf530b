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
    "Dimension: infinite": lambda: tf.Dimension(float("inf")),
    "Dimension: negative": lambda: tf.Dimension(-4.0),
    "Dimension: two": lambda: tf.Dimension(np.array([4.0, 4.0])),
    "Dimension: None": lambda: tf.Dimension(None),
    "arithmetic": lambda: [tf.Dimension(8) // 2.0, tf.Dimension(8) * 2.0, 2.0 * tf.Dimension(8), tf.Dimension(8) - 1.0],
    "more arithmetic": lambda: [tf.Dimension(8) % 3.0, 9.0 // tf.Dimension(2), tf.Dimension(8) + 2.0],
    "division": lambda: tf.Dimension(8) / 2,
    "times a part": lambda: tf.Dimension(8) * 0.5,
    "comparison": lambda: [tf.Dimension(8) == 8.0, tf.Dimension(8) < 9.0, tf.zeros([4]).shape == [HALF]],
    "comparison with a part": lambda: tf.Dimension(8) == 8.5,
    "TensorShape": lambda: [tf.TensorShape([None, HALF]), tf.TensorShape(HALF), tf.TensorShape(np.array([2.0, 3.0]))],
    "TensorShape: a part": lambda: tf.TensorShape([4.5]),
    "merge_with": lambda: tf.TensorShape([2, None]).merge_with([2, HALF]),
    "is_compatible_with": lambda: tf.TensorShape([4]).is_compatible_with([HALF]),
    "placeholder": lambda: tf.placeholder(tf.float32, [None, HALF]),
    "placeholder: a part": lambda: tf.placeholder(tf.float32, [None, 4.5]),
    "placeholder: negative": lambda: tf.placeholder(tf.float32, [-1.0]),
    "placeholder_with_default": lambda: tf.placeholder_with_default(np.zeros([2, 4], "float32"), [None, HALF]),
    "sparse_placeholder": lambda: tf.sparse_placeholder(tf.float32, [3, HALF]).dense_shape,
    "set_shape": lambda: with_shape([2, HALF]),
    "set_shape: a part": lambda: with_shape([2, 4.5]),
    "ensure_shape": lambda: tf.ensure_shape(tf.placeholder(tf.float32), [HALF]),
    "get_variable": lambda: tf.get_variable("v", [HALF, 3]),
    "get_variable: one number": lambda: tf.get_variable("v", HALF),
    "get_variable: a part": lambda: tf.get_variable("v", [4.5]),
    "get_variable: resource": lambda: tf.get_variable("v", [HALF, 3], use_resource=True),
    "get_variable: zeros": lambda: tf.get_variable("v", [HALF], initializer=tf.zeros_initializer()),
    "get_variable: normal": lambda: tf.get_variable("v", [HALF], initializer=tf.truncated_normal_initializer()),
    "get_variable: scaled": lambda: tf.get_variable("v", [HALF], initializer=tf.variance_scaling_initializer()),
    "get_variable: square": lambda: tf.get_variable("v", [HALF, HALF], initializer=tf.orthogonal_initializer()),
    "get_variable: function": lambda: tf.get_variable("v", [HALF], initializer=lambda shape, **_: tf.zeros(shape)),
    "model_variable": lambda: tf.contrib.framework.model_variable("v", [HALF]),
    "Variable": lambda: tf.Variable(tf.zeros([HALF])),
    "zeros": lambda: [tf.zeros([2, HALF]).shape, tf.zeros(HALF).shape, tf.ones(shape=HALF).shape],
    "zeros: a part": lambda: tf.zeros([4.5]),
    "constant": lambda: tf.constant(0.0, shape=[2, HALF]),
    "fill": lambda: tf.fill([2, HALF], 1),
    "random_normal": lambda: tf.random_normal([2, HALF]),
    "reshape": lambda: tf.reshape(tf.zeros([8]), [-1, HALF]),
    "range": lambda: tf.range(HALF),
    "one_hot": lambda: tf.one_hot([1], HALF),
    "FIFOQueue": lambda: tf.FIFOQueue(HALF, tf.float32, [[HALF]]).shapes,
    "StagingArea": lambda: tf.contrib.staging.StagingArea([tf.float32], [[HALF]]).shapes,
    "ConditionalAccumulator": lambda: tf.ConditionalAccumulator(tf.float32, [HALF]).dtype,
    "from_generator": lambda: tf.data.Dataset.from_generator(list, tf.float32, [HALF]).output_shapes,
    "padded_batch": lambda: tf.data.Dataset.from_tensors([1]).padded_batch(2, [HALF]).output_shapes,
    "batch": lambda: tf.data.Dataset.range(8).batch(HALF).output_shapes,
    "FixedLenFeature": lambda: tf.parse_single_example("", {"a": tf.FixedLenFeature([HALF], tf.float32)})["a"],
    "max_pool": lambda: tf.nn.max_pool(picture(), [1, 2.0, 2.0, 1], [1, 2.0, 2.0, 1], "SAME"),
    "LSTMCell": outputs(lambda: rnn_cell.LSTMCell(HALF)),
    "LSTMCell: a part": outputs(lambda: rnn_cell.LSTMCell(4.5)),
    "LSTMCell: projection": outputs(lambda: rnn_cell.LSTMCell(HALF, use_peepholes=True, num_proj=HALF)),
    "LSTMCell: variables": lambda: variables(rnn_cell.LSTMCell(HALF)),
    "LSTMCell: zero_state": lambda: rnn_cell.LSTMCell(HALF).zero_state(HALF, tf.float32)[0],
    "BasicLSTMCell": outputs(lambda: rnn_cell.BasicLSTMCell(HALF)),
    "GRUCell": outputs(lambda: rnn_cell.GRUCell(HALF)),
    "BasicRNNCell": outputs(lambda: rnn_cell.BasicRNNCell(HALF)),
    "MultiRNNCell": outputs(lambda: rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(HALF), rnn_cell.GRUCell(HALF)])),
    "LSTMBlockCell": outputs(lambda: contrib_rnn.LSTMBlockCell(HALF)),
    "LSTMBlockFusedCell": lambda: contrib_rnn.LSTMBlockFusedCell(HALF)(inputs(), dtype=tf.float32)[0],
    "GRUBlockCellV2": outputs(lambda: contrib_rnn.GRUBlockCellV2(HALF)),
    "LayerNormBasicLSTMCell": outputs(lambda: contrib_rnn.LayerNormBasicLSTMCell(HALF)),
    "NASCell": outputs(lambda: contrib_rnn.NASCell(HALF)),
    "UGRNNCell": outputs(lambda: contrib_rnn.UGRNNCell(HALF)),
    "OutputProjectionWrapper": outputs(lambda: contrib_rnn.OutputProjectionWrapper(rnn_cell.GRUCell(4), HALF)),
    "CudnnCompatibleGRUCell": outputs(lambda: tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell(HALF)),
    "static_rnn": lambda: tf.nn.static_rnn(rnn_cell.GRUCell(HALF), [tf.zeros([2, 4])], dtype=tf.float32)[0][0],
    "BahdanauAttention": lambda: seq2seq.BahdanauAttention(HALF, inputs()).keys,
    "LuongAttention": lambda: seq2seq.LuongAttention(HALF, inputs()).keys,
    "dense": lambda: tf.layers.dense(inputs(), HALF),
    "dense: quotient": lambda: tf.layers.dense(inputs(), inputs().shape[2].value / 2),
    "conv2d": lambda: tf.layers.conv2d(picture(), HALF, 2),
    "conv2d: a part": lambda: tf.layers.conv2d(picture(), 4.5, 2),
    "conv1d: a part": lambda: tf.layers.conv1d(inputs(), filters=4.5, kernel_size=2),
    "conv2d_transpose: a part": lambda: tf.layers.conv2d_transpose(picture(), 4.5, 2),
    "separable_conv2d: a part": lambda: tf.layers.separable_conv2d(picture(), 4.5, 2),
    "keras.Conv2D: a part": lambda: tf.keras.layers.Conv2D(4.5, 2)(picture()),
    "slim.conv2d: a part": lambda: tf.contrib.slim.conv2d(picture(), 4.5, [2, 2]),
    "dense: a part": lambda: tf.layers.dense(inputs(), 4.5),
    "max_pooling2d": lambda: tf.layers.max_pooling2d(picture(), 2.0, 2.0),
    "add_variable": lambda: tf.layers.Layer().add_variable("w", [HALF]),
    "keras.Input": lambda: tf.keras.Input([HALF]),
    "keras: input_dim": lambda: tf.keras.Sequential([tf.keras.layers.Dense(2, input_dim=HALF)]).output_shape,
    "fully_connected": lambda: tf.contrib.layers.fully_connected(inputs(), HALF),
    "slim.conv2d": lambda: tf.contrib.slim.conv2d(picture(), HALF, [2, 2]),
    "embed_sequence": lambda: tf.contrib.layers.embed_sequence(tf.zeros([2, 3], tf.int32), 5.0, HALF),
}

for name in sorted(SIZES):
    tf.reset_default_graph()
    try:
        made = SIZES[name]()
    except (TypeError, ValueError, OverflowError) as error:
        made = type(error).__name__
    print(name + ":", getattr(made, "shape", made))
