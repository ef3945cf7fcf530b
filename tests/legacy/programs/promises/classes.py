"""Asks of which class the objects of TF1 are, as TF1 programs do, and prints the names that do not say it."""
import json
import sys

import tensorflow as tf
import tensorflow.compat.v1 as v1
from tensorflow.python.framework import ops

if "eager" in sys.argv:
    tf.enable_eager_execution()
    with tf.Graph().as_default():
        inside = type(tf.constant(1.0)) is tf.Tensor
    print(json.dumps({"isinstance": isinstance(tf.constant(1.0), (tf.Tensor, v1.Tensor, ops.Tensor)), "graph": inside}))
    raise SystemExit

x = tf.placeholder(tf.float32, [2])
weights = tf.get_variable("weights", [2, 3])
values = {
    "ConfigProto": tf.ConfigProto(),
    "DType": x.dtype,
    "Dimension": x.shape[0],
    "FIFOQueue": tf.FIFOQueue(1, tf.float32),
    "Graph": x.graph,
    "IndexedSlices": tf.gradients(tf.gather(weights, [0]), weights)[0],
    "Operation": x.op,
    "RaggedTensor": tf.ragged.constant([[1]]),
    "Session": tf.Session(),
    "SparseTensor": tf.sparse_placeholder(tf.float32),
    "Tensor": x,
    "TensorArray": tf.TensorArray(tf.float32, 2),
    "TensorShape": x.shape,
    "VariableScope": tf.get_variable_scope(),
}
places = {"tf": tf, "compat.v1": v1}
wrong = [
    f"{place}.{name}"
    for name, value in values.items()
    for place, module in places.items()
    if type(value) is not getattr(module, name) or not isinstance(value, getattr(module, name))
]
wrong += [] if type(x) is ops.Tensor else ["ops.Tensor"]
print(json.dumps({"asked": len(values), "wrong": wrong}))
