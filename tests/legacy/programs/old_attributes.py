"""What helper files of TF1 read below the API: attributes, functions of modules, and a copy of a part of a graph."""
from __future__ import print_function

import numpy as np
import tensorflow as tf
import tensorflow.contrib.graph_editor as ge
from tensorflow.python.framework import op_def_library, op_def_registry, ops, tensor_shape, tensor_util
from tensorflow.python.ops import math_ops, resource_variable_ops
from tensorflow.python.training.tracking import graph_view  # bad: STG120, as other names below

graph = tf.get_default_graph()
x = tf.constant([[1.0, 2.0]], name="x")
hidden = tf.tanh(tf.matmul(x, tf.fill([2, 2], 0.5)), name="hidden")
with tf.control_dependencies([tf.no_op("first")]):
    last = tf.identity(x)
op = hidden.op
print("operation", [tensor.name for tensor in op._outputs], [tensor.name for tensor in op._inputs])
print("control inputs", [each.name for each in last.op._control_inputs], op._graph is graph, len(op._traceback) > 0)
print("missing", hasattr(op, "_no_such_name"), hasattr(graph, "_no_such_name"))

# As in openai's memory_saving_gradients.py.
stopped = tf.stop_gradient(x)
copied, info = ge.copy_with_input_replacements(ge.sgv([op, op.inputs[0].op]), {})
again = info._transformed_ops[op]._outputs[0]
ge.reroute_ts([stopped], [x], can_modify=[info._transformed_ops[op.inputs[0].op]])
for origin, copy in info._transformed_ops.items():
    copy._set_device(origin.node_def.device)
gradient, copied_gradient = tf.gradients(hidden, x)[0], tf.gradients(again, stopped)[0]
print("gradients of x through the copy", tf.gradients(again, x))

# As in fid.py of TTUR, which feeds batches to a graph that was saved with batches of one.
one = tf.placeholder_with_default([[1.0, 2.0]], [1, 2], name="one")
doubled = one * 2
for tensor in (one, doubled):
    tensor.__dict__["_shape_val"] = tf.TensorShape([None, 2])
with tf.Session() as session:
    print("batch of three", session.run(doubled, {one: np.ones([3, 2])}).shape, one.shape, doubled.get_shape())
doubled.set_shape([None, 2])
print("set_shape", doubled.shape)

# As in retrain.py of TensorFlow's tutorials, and in util.py of gradient-checkpointing.
print("shapes", [each.as_list() for each in (tensor_shape.scalar(), tensor_shape.vector(2), tensor_shape.matrix(2, None))])
print("drawn", tf.random_uniform(tensor_shape.scalar(), 1.0, 1.5).shape)
library = op_def_library.OpDefLibrary()
for name in ("AddN", "NoOp"):
    library.add_op(op_def_registry.get_registered_ops()[name])
total = library.apply_op("AddN", inputs=[x, x], name="total")
print("by name", total.name, library.apply_op("NoOp").type)
handle = resource_variable_ops.variable_handle_from_shape_and_dtype([2], tf.float32, "two", "two", True)
print("handle", handle.op.type, handle.op.get_attr("dtype").name)
pair = tf.placeholder_with_default([0.0, 0.0], [None])
tensor_util.maybe_set_static_shape(pair, [2])
print("static shape", pair.shape)
with ops.default_session(tf.Session()):
    print("evaluated", total.eval().tolist(), tensor_util.shape_tensor([2, 3]).eval(), math_ops.bincount_v1([1, 1, 2]).eval())
checkpoint = tf.train.Checkpoint()
print("tracked", graph_view.ObjectGraphView(checkpoint).root is checkpoint)

before = graph._last_id, graph._version, graph._next_id_counter
tf.constant(1.0)
print("one more op", [after - each for after, each in zip((graph._last_id, graph._version, graph._next_id_counter), before)])
graph.finalize()
graph._finalized = False
tf.constant(1.0, name="after_finalize")
print("collections", sorted(graph._collections), "after_finalize" in graph._names_in_use)
with tf.Session() as session:
    print("values", *["%.5f" % number for each in session.run([gradient, copied_gradient]) for number in each[0]])

layer = tf.keras.layers.Dense(2, kernel_initializer="ones")
print("apply", layer.apply(x).shape, tf.layers.Dense(3).apply(x).shape)
for units in (1, 3):
    first = tf.keras.layers.Dense(units, "sigmoid", kernel_initializer=tf.constant_initializer(np.eye(2, units)), input_shape=(2,))
    model = tf.keras.Sequential([first])
    rows = np.float32([[1, 2], [-3, -4], [5, 0]])
    print("classes", model.predict_classes(rows).ravel(), "%.5f" % model.predict_proba(rows).sum())
