"""A program that was migrated by hand, and still uses what is gone: of numpy, of TensorFlow's own modules, of Keras 2."""
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops.control_flow_ops import cond  # bad: STG120

tf.disable_v2_behavior()


def record(pixels):
    image = np.asarray(pixels, np.uint8).reshape([4, 4])
    small = image[::2, ::2].astype(np.float32)
    values = [image.tostring(), b""]  # bad: STG119
    values.append(small.tostring())  # bad: STG119
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def model(x):
    x = ops.convert_to_tensor(x)
    if isinstance(x, ops.Tensor):  # bad: STG120
        x = tf.layers.dense(x, 8)  # bad: STG121
    cell = tf.nn.rnn_cell.GRUCell(8)
    return cond(tf.constant(True), lambda: x, lambda: cell(x, x)[0])
