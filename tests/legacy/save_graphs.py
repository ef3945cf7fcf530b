"""Saves graphs of training programs with TensorFlow 1.15.5 in goldens/saved/graphs.tar.xz.

Usage: python save_graphs.py, with the interpreter of record_goldens.py. programs/saved/load_graphs.py loads them.
It must run on Python 3.7.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import data_flow_ops

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "goldens", "saved", "graphs.tar.xz")
CASES = []
PICTURES = (np.arange(2 * 4 * 4 * 2).reshape(2, 4, 4, 2) % 7 / 7).tolist()
ROWS = (np.arange(2 * 3 * 4).reshape(2, 3, 4) % 5 / 5).tolist()
constant = tf.constant_initializer


def case(**how):
    """Add a graph to the cases. Its function returns the values to feed, and the tensors to fetch beside the loss."""

    def add(build):
        CASES.append((build.__name__, build, how))
        return build

    return add


def pictures():
    return tf.placeholder(tf.float32, [None, 4, 4, 2], "pictures")


def minimize(loss, optimizer=None):
    # Without the loss, it would read the variables before or after the step.
    with tf.control_dependencies([loss, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]):
        (optimizer or tf.train.GradientDescentOptimizer(0.1)).minimize(loss, name="step")
    tf.identity(loss, "loss")


def with_batch_norm(training, **how):
    x = tf.layers.conv2d(pictures(), 3, 2, kernel_initializer=constant(0.1))
    x = tf.layers.batch_normalization(x, training=training, **how)
    minimize(tf.reduce_sum(tf.square(x - 0.3)))


@case()
def batch_norm_in_training():
    with_batch_norm(True)
    return {"pictures": PICTURES}


@case()
def batch_norm_in_inference():
    with_batch_norm(False)
    return {"pictures": PICTURES}


@case(version=1)
def batch_norm_by_placeholder():
    with_batch_norm(tf.placeholder(tf.bool, [], "training"))
    return {"pictures": PICTURES, "training": True}


@case()
def batch_norm_with_default():
    with_batch_norm(tf.placeholder_with_default(False, [], "training"), fused=True, scale=False)
    return {"pictures": PICTURES}


@case(version=1)
def batch_norm_of_slim():
    training = tf.placeholder(tf.bool, [], "training")
    with tf.contrib.framework.arg_scope([tf.contrib.slim.batch_norm], is_training=training, fused=True):
        x = tf.contrib.slim.conv2d(
            pictures(), 3, 2, weights_initializer=constant(0.1), normalizer_fn=tf.contrib.slim.batch_norm
        )
    minimize(tf.reduce_sum(tf.square(x - 0.3)), tf.train.MomentumOptimizer(0.1, 0.9))
    return {"pictures": PICTURES, "training": False}


@case(kind="saved_model")
def batch_norm_of_keras():
    x = tf.keras.layers.Conv2D(3, 2, kernel_initializer=constant(0.1))(pictures())
    x = tf.keras.layers.BatchNormalization()(x)
    minimize(tf.reduce_sum(tf.square(x - 0.3)), tf.train.MomentumOptimizer(0.1, 0.9))
    return {"pictures": PICTURES, tf.keras.backend.learning_phase().op.name: True}


@case()
def queue_runners():
    number = tf.train.range_input_producer(8, shuffle=False, num_epochs=2).dequeue()
    rows = tf.train.batch({"x": tf.to_float(number), "y": tf.stack([number, number])}, 4)
    weight = tf.get_variable("weight", [], initializer=constant(0.5))
    minimize(tf.reduce_mean(tf.square(rows["x"] * weight - tf.to_float(rows["y"][:, 0]))))
    tf.identity(rows["y"], "rows")
    return {}, ["rows"]


@case()
def areas():
    area = tf.contrib.staging.StagingArea([tf.float32], [[3]], capacity=2)
    numbered = data_flow_ops.MapStagingArea([tf.float32], [[3]])
    put = area.put([tf.placeholder(tf.float32, [3], "x")])
    put_number = numbered.put(tf.constant(7, tf.int64), [tf.constant([1.0, 2.0, 3.0])], [0])
    tf.group(put, put_number, name="before")
    key, value = numbered.get()
    weight = tf.get_variable("weight", [3], initializer=constant(0.5))
    minimize(tf.reduce_sum(area.get() * weight + tf.reshape(value, [3])))
    tf.identity(key, "key")
    return {"x": [1.0, 2.0, 4.0]}, ["key"]


@case(version=1)
def lstm_blocks():
    x = tf.placeholder(tf.float32, [None, 3, 4], "rows")
    with tf.variable_scope("block", initializer=constant(0.1)):
        outputs, _ = tf.nn.dynamic_rnn(tf.contrib.rnn.LSTMBlockCell(3), x, dtype=tf.float32)
    with tf.variable_scope("fused", initializer=constant(0.1)):
        outputs, state = tf.contrib.rnn.LSTMBlockFusedCell(2)(outputs, dtype=tf.float32, sequence_length=[2, 1, 2])
    minimize(tf.reduce_sum(tf.square(outputs - 0.3)) + tf.reduce_sum(state.c), tf.train.AdamOptimizer(0.1))
    return {"rows": ROWS}


@case()
def control_flow():
    weight = tf.get_variable("weight", [], initializer=constant(0.5))
    flag = tf.placeholder(tf.bool, [], "flag")

    def body(index, total):
        return index + 1, tf.cond(flag, lambda: total * weight, lambda: total + weight)

    _, total = tf.while_loop(lambda index, _: index < 3, body, (0, tf.constant(2.0)), maximum_iterations=5)
    doubled = tf.case([(tf.logical_not(flag), lambda: total), (total > 1, lambda: 2 * total)], lambda: 3 * total)
    mapped = tf.map_fn(lambda x: x * weight, tf.constant([1.0, 2.0]))
    minimize(doubled + tf.reduce_sum(mapped) + tf.scan(lambda a, x: a + x * weight, tf.constant([1.0, 2.0]))[-1])
    return {"flag": True}


@case()
def python_functions():
    weight = tf.get_variable("weight", [2], initializer=constant(0.5))
    tensor = tf.py_func(lambda: np.float32([1, 2]), [], tf.float32, name="from_python")
    tensor.set_shape([2])
    tf.identity(tensor, "shaped")
    minimize(tf.reduce_sum(weight))
    return {}


@case(kind="saved_model")
def tables_and_assets():
    words = tf.placeholder(tf.string, [None], "words")
    path = os.path.join(tempfile.mkdtemp(), "vocabulary.txt")
    with open(path, "w") as file:
        file.write("red\ngreen\nblue\n")
    listed = tf.contrib.lookup.index_table_from_file(path, num_oov_buckets=2)
    named = tf.contrib.lookup.index_to_string_table_from_tensor(["a", "b", "c"])
    mutable = tf.contrib.lookup.MutableHashTable(tf.string, tf.int64, -1)
    mutable.insert(tf.constant(["red"]), tf.constant([5], tf.int64), name="before")
    ids = tf.identity(listed.lookup(words), "ids")
    tf.identity(named.lookup(ids), "names")
    tf.identity(mutable.lookup(words), "mutable")
    vectors = tf.get_variable("vectors", [5, 2], initializer=constant(0.5))
    minimize(tf.reduce_sum(tf.nn.embedding_lookup(vectors, ids)), tf.train.AdagradOptimizer(0.1))
    return {"words": ["blue", "red", "other"]}, ["ids", "names", "mutable"]


@case(kind="frozen")
def frozen():
    x = tf.layers.conv2d(pictures(), 3, 2, kernel_initializer=constant(0.1))
    x = tf.layers.batch_normalization(x, training=False)
    tf.reduce_sum(tf.nn.relu(tf.layers.dense(tf.layers.flatten(x), 2, kernel_initializer=constant(0.1))), name="loss")
    return {"pictures": PICTURES}


@case()
def dataset():
    found = tf.data.Dataset.from_tensor_slices(tf.constant([1.0, 2.0, 3.0, 4.0])).map(lambda x: 2 * x)
    iterator = found.filter(lambda x: x > 2).batch(2).prefetch(1).make_initializable_iterator()
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    weight = tf.get_variable("weight", [], initializer=constant(0.5), use_resource=True)
    minimize(tf.reduce_sum(iterator.get_next() * weight))
    return {}


@case()
def averages_and_parts():
    with tf.variable_scope("parts", partitioner=tf.fixed_size_partitioner(2)):
        vectors = tf.get_variable("vectors", [4, 2], initializer=constant(0.5))
    weight = tf.get_variable("weight", [2, 2], initializer=constant(0.5))
    found = tf.nn.embedding_lookup(vectors, tf.placeholder(tf.int32, [None], "ids"), partition_strategy="div")
    loss = tf.reduce_sum(tf.nn.dropout(tf.tanh(tf.matmul(found, weight)), keep_prob=0.9, seed=3))
    average = tf.train.ExponentialMovingAverage(0.9)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.apply([weight]))
    minimize(loss, tf.train.RMSPropOptimizer(tf.train.exponential_decay(0.1, 3, 10, 0.9), momentum=0.9))
    tf.summary.scalar("loss", loss)
    tf.summary.merge_all(name="summary")
    return {"ids": [0, 3, 3]}


@case(version=1)
def many_gradients():
    x = pictures()
    weights = tf.get_variable("weights", [2, 2, 2, 2], initializer=constant(0.1))
    parts = [
        tf.nn.conv2d_transpose(x, weights, tf.stack([tf.shape(x)[0], 8, 8, 2]), [1, 2, 2, 1]),
        tf.nn.depthwise_conv2d(x, weights, [1, 1, 1, 1], "SAME"),
        tf.nn.max_pool(tf.nn.conv2d(x, weights, [1, 1, 1, 1], "SAME"), [1, 2, 2, 1], [1, 2, 2, 1], "VALID"),
        tf.nn.avg_pool(tf.nn.atrous_conv2d(x, weights, 2, "SAME"), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
        tf.nn.lrn(tf.nn.conv2d(x, weights, [1, 2, 2, 1], "SAME")),
        tf.image.resize_bilinear(tf.nn.elu(tf.nn.conv2d(x, weights, [1, 1, 1, 1], "SAME")), [3, 5]),
        tf.image.resize_nearest_neighbor(tf.nn.softplus(tf.nn.conv2d(x, weights, [1, 1, 1, 1], "SAME")), [3, 5]),
        tf.extract_image_patches(x * weights[0, 0, 0, 0], [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME"),
        tf.nn.fused_batch_norm(x, weights[0, 0, 0], weights[0, 0, 1], [0.1, 0.2], [0.3, 0.4], is_training=False)[0],
        tf.nn.batch_normalization(x, *tf.nn.moments(x * weights[0, 0, 0], [0, 1, 2]), None, None, 0.001),
        tf.pad(tf.transpose(x, [0, 2, 1, 3]) * weights[0, 0, 0], [[0, 0], [1, 1], [0, 0], [0, 0]], "REFLECT"),
        tf.nn.conv3d(x[:, None], weights[None], [1, 1, 1, 1, 1], "SAME"),
        tf.gather_nd(weights, [[0, 0], [1, 1]]),
        tf.cumsum(tf.reverse(tf.split(weights, 2, 3)[0], [0])),
        tf.segment_sum(weights, [0, 0]),
        tf.sparse_tensor_dense_matmul(tf.SparseTensor([[0, 1]], [2.0], [2, 2]), weights[0, 0]),
        tf.einsum("bijk,kl->bijl", x, weights[0, 0]),
        tf.space_to_depth(x * weights[0, 0, 0], 2),
        tf.where(x > 0.5, x * weights[0, 0, 0], x),
        tf.matrix_inverse(weights[0, 0] + tf.eye(2)),
        tf.nn.l2_normalize(tf.concat([weights, weights], 0), 0),
    ]
    loss = tf.add_n([tf.reduce_mean(tf.square(part)) for part in parts])
    logits = tf.tensordot(x, weights[0, 0], 1)
    labels = tf.cast(x[..., 0] > 0.5, tf.int32)
    loss += tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    minimize(loss, tf.train.FtrlOptimizer(0.1))
    return {"pictures": PICTURES}


def save(name, build, folder, kind="meta", version=2):
    """Save one graph and its variables; return what its loading needs."""
    tf.reset_default_graph()
    made = build()
    feeds, fetches = made if isinstance(made, tuple) else (made, [])
    path = os.path.join(folder, name)
    tf.add_to_collection("shapes", tf.get_default_graph().get_tensor_by_name("loss:0"))
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        graph = session.graph.as_graph_def(add_shapes=True)
        if kind == "meta":
            tf.train.Saver(write_version=version).save(session, path)
        elif kind == "frozen":
            frozen_graph = tf.graph_util.convert_variables_to_constants(session, graph, ["loss"])
            with open(path + ".pb", "wb") as file:
                file.write(frozen_graph.SerializeToString())
        else:
            builder = tf.saved_model.builder.SavedModelBuilder(path)
            inputs = {each: session.graph.get_tensor_by_name(each + ":0") for each in feeds}
            outputs = {"loss": session.graph.get_tensor_by_name("loss:0")}
            signature = tf.saved_model.signature_def_utils.predict_signature_def(inputs, outputs)
            builder.add_meta_graph_and_variables(
                session,
                ["train"],
                {"serving_default": signature},
                assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
                main_op=tf.tables_initializer(),
            )
            builder.save()
    return {"kind": kind, "feeds": feeds, "fetches": fetches}


def main():
    """Write graphs.tar.xz."""
    if tf.__version__ != "1.15.5":
        sys.exit("the oracle is TensorFlow 1.15.5, this is " + tf.__version__)
    folder = tempfile.mkdtemp()
    cases = {name: save(name, build, folder, **how) for name, build, how in CASES}
    with open(os.path.join(folder, "cases.json"), "w") as file:
        json.dump(cases, file, sort_keys=True)
    with tarfile.open(TARGET, "w:xz") as archive:
        archive.add(folder, arcname=".", filter=lambda info: None if info.name.endswith("checkpoint") else info)


if __name__ == "__main__":
    main()
