"""Trains parts of tf.contrib for five steps, and prints their losses and the sizes of their gradients.

A part is a function that builds a graph and returns a loss, a loss and an optimizer, or a list of tensors to print.
Trainable variables get values that depend on their names.
"""
from __future__ import print_function

import os
import tempfile
import zlib

import numpy as np
import tensorflow as tf
from tensorflow import contrib
from tensorflow.contrib import crf, framework, image, layers, learn, legacy_seq2seq, lookup, opt, rnn, seq2seq, slim, training
from tensorflow.contrib.losses import metric_learning
from tensorflow.contrib.slim import nets

BATCH, STEPS, UNITS, WORDS = 3, 4, 5, 6
LENGTHS = np.array([4, 2, 3], np.int32)
PARTS = []


def part(build):
    PARTS.append(build)
    return build


def numbers(*shape, **how):
    """Return a constant of random numbers."""
    draw = np.random.RandomState(how.get("seed", 0))
    return tf.constant(draw.randn(*shape).astype(np.float32) * how.get("scale", 1.0))


def classes(count, *shape):
    """Return a constant of random integers below `count`."""
    return tf.constant(np.random.RandomState(5).randint(0, count, shape), tf.int32)


def run(build):
    built = build()
    if isinstance(built, list):
        with session() as sess:
            return shown(sess.run(built) for _ in range(2))
    loss, optimizer = built if isinstance(built, tuple) else (built, tf.train.GradientDescentOptimizer(0.1))
    variables = tf.trainable_variables()
    pairs = optimizer.compute_gradients(loss, variables)
    sizes = [tf.norm(tf.convert_to_tensor(gradient)) for gradient, _ in pairs if gradient is not None]
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS) + sizes + [loss]):
        train = optimizer.apply_gradients(pairs)
    with session() as sess:
        before = (sess.run([loss] + sizes) for _ in range(1))
        steps = [shown(before)]
        for _ in range(5):
            sess.run(train)
            steps.append("%.5g" % sess.run(loss))
        return " ".join(steps) + " of %d variables" % len(variables)


def session():
    values = {}
    for variable in tf.trainable_variables():
        draw = np.random.RandomState(zlib.crc32(variable.op.name.encode()) & 0x7FFFFFFF)
        shape, dtype = variable.shape.as_list(), variable.dtype.base_dtype.as_numpy_dtype
        values[variable] = np.asarray(draw.randn(*shape) * 0.3, dtype)
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    sess.run([tf.local_variables_initializer(), tf.tables_initializer()])
    for variable, value in values.items():
        variable.load(value, sess)
    tf.train.start_queue_runners(sess, tf.train.Coordinator())
    return sess


def shown(runs):
    shown = []
    for run in runs:
        for value in run:
            for figure in np.ravel(np.asarray(value)):
                shown.append(figure.decode() if isinstance(figure, bytes) else str(figure) if isinstance(figure, str) else "%.5g" % figure)
    return " ".join(shown)


def size(tensor):
    return tf.reduce_mean(tf.square(tensor - 0.3))


@part
def layers_batch_norm_unfused():
    return size(layers.batch_norm(numbers(3, 6, 6, 4), fused=False, updates_collections=None))


@part
def layers_safe_embedding_lookup_sparse():
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 3, -1], tf.int64), [3, 2])
    return size(layers.safe_embedding_lookup_sparse([tf.get_variable("table", [7, 5])], ids, combiner="sum"))


@part
def columns_weighted_sum():
    features = {
        "age": numbers(3, 1),
        "word": tf.SparseTensor([[0, 0], [1, 0], [2, 0]], tf.constant(["a", "b", "a"]), [3, 1]),
        "other": tf.SparseTensor([[0, 0], [1, 0], [2, 1]], tf.constant(["x", "y", "z"]), [3, 2]),
    }
    word = layers.sparse_column_with_hash_bucket("word", 5)
    other = layers.sparse_column_with_keys("other", ["x", "y", "z"])
    chosen = [word, other, layers.crossed_column([word, other], 10), layers.real_valued_column("age")]
    return size(layers.weighted_sum_from_feature_columns(features, chosen, 2)[0])


@part
def slim_nets_resnet_arg_scope():
    blocks = [nets.resnet_v1.resnet_v1_block("block1", base_depth=2, num_units=1, stride=2)]
    with slim.arg_scope(nets.resnet_utils.resnet_arg_scope(weight_decay=0.01)):
        net, ends = nets.resnet_v1.resnet_v1(numbers(2, 16, 16, 3), blocks, 4, is_training=True, include_root_block=False)
    return size(net) + size(ends["predictions"]) + tf.losses.get_regularization_loss()


@part
def losses_triplet_semihard():
    x = layers.fully_connected(numbers(6, 4), 5, None)
    return metric_learning.triplet_semihard_loss(tf.constant([0, 0, 1, 1, 2, 2]), x)


@part
def crf_log_likelihood():
    scores = tf.layers.dense(numbers(BATCH, STEPS, 7), WORDS, name="dense")
    likelihood, _ = crf.crf_log_likelihood(scores, classes(WORDS, BATCH, STEPS), tf.constant(LENGTHS))
    return tf.reduce_mean(-likelihood)


@part
def bahdanau_attention():
    mechanism = seq2seq.BahdanauAttention(UNITS, numbers(BATCH, 5, 8, seed=2), [5, 3, 4])
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(UNITS), mechanism, attention_layer_size=4)
    helper = seq2seq.TrainingHelper(numbers(BATCH, STEPS, 7), LENGTHS)
    state = cell.zero_state(BATCH, tf.float32)
    decoder = seq2seq.BasicDecoder(cell, helper, state, output_layer=tf.layers.Dense(WORDS, name="words"))
    outputs, _, _ = seq2seq.dynamic_decode(decoder)
    return seq2seq.sequence_loss(outputs.rnn_output, classes(WORDS, BATCH, STEPS), tf.sequence_mask(LENGTHS, STEPS, tf.float32))


@part
def seq2seq_beam_search_with_attention():
    memory = seq2seq.tile_batch(numbers(BATCH, 5, 8, seed=2), 3)
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(UNITS), seq2seq.LuongAttention(UNITS, memory), alignment_history=False)
    words, state = numbers(WORDS, 7, seed=3), cell.zero_state(3 * BATCH, tf.float32)
    decoder = seq2seq.BeamSearchDecoder(
        cell, words, tf.fill([BATCH], 1), 2, state, 3, tf.layers.Dense(WORDS), length_penalty_weight=0.6
    )
    outputs, states, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=5)
    return [outputs.predicted_ids, states.log_probs, lengths]


@part
def legacy_embedding_attention():
    rows = tf.unstack(classes(WORDS, STEPS, BATCH))
    outputs, _ = legacy_seq2seq.embedding_attention_seq2seq(
        rows, rows, rnn.BasicLSTMCell(UNITS), WORDS, WORDS, 4, num_heads=2
    )
    words = [tf.layers.dense(output, WORDS, name="words", reuse=tf.AUTO_REUSE) for output in outputs]
    return legacy_seq2seq.sequence_loss(words, rows, [tf.ones([BATCH])] * STEPS)


@part
def gru_block_cell_v2():
    outputs, _ = tf.nn.dynamic_rnn(rnn.GRUBlockCellV2(UNITS), numbers(BATCH, STEPS, 6), LENGTHS, dtype=tf.float32)
    return size(outputs)


@part
def lstm_block_fused():
    cell = rnn.LSTMBlockFusedCell(UNITS)
    return size(cell(numbers(STEPS, BATCH, 6), dtype=tf.float32, sequence_length=tf.constant(LENGTHS))[0])


@part
def opt_lazy_adam():
    made = tf.layers.dense(tf.layers.dense(numbers(4, 3), 5, tf.tanh), 2)
    return size(made), opt.LazyAdamOptimizer(0.1)


@part
def lookup_tables():
    words = tf.constant(["a", "b", "x"])
    ids = lookup.index_table_from_tensor(["a", "b", "c"], num_oov_buckets=2)
    back = lookup.index_to_string_table_from_tensor(["a", "b"], default_value="none")
    table = lookup.HashTable(lookup.KeyValueTensorInitializer(["a", "b"], [3, 4], value_dtype=tf.int64), -1)
    return [ids.lookup(words), back.lookup(tf.constant([1, 5], tf.int64)), table.lookup(words)]


@part
def training_hparams():
    hparams = training.HParams(rate=0.1, sizes=[1, 2], name="x", flag=True)
    hparams.parse("rate=0.25,sizes=[3,4],name=y")
    hparams.add_hparam("more", 7)
    hparams.override_from_dict({"flag": False})
    return [tf.constant(hparams.to_json(sort_keys=True)), tf.constant(hparams.rate), tf.constant(hparams.sizes)]


@part
def training_bucket_by_sequence_length():
    numbers_in_order = tf.train.range_input_producer(12, shuffle=False, num_epochs=None).dequeue()
    row = tf.range(1 + numbers_in_order % 3)
    lengths, batches = training.bucket_by_sequence_length(
        tf.size(row), [row], 2, [2], num_threads=1, capacity=4, dynamic_pad=True
    )
    return [tf.shape(lengths), tf.rank(batches[0]), tf.reduce_max(lengths) - tf.shape(batches[0])[1]]


@part
def framework_variables():
    with framework.arg_scope([framework.model_variable], device="/cpu:0", regularizer=tf.nn.l2_loss):
        framework.model_variable("weights", [2, 3], initializer=tf.ones_initializer())
    framework.local_variable(3.0, name="local")
    names = [variable.op.name for variable in framework.get_variables_to_restore()]
    found = framework.filter_variables(framework.get_model_variables(), include_patterns=["wei"])
    return [tf.constant(names), tf.constant(len(found)), tf.constant(len(framework.get_local_variables()))]


@part
def framework_assign_from_checkpoint():
    weights = framework.variable("weights", [2], initializer=tf.ones_initializer())
    path = os.path.join(tempfile.mkdtemp(), "model.ckpt")
    with tf.Session() as sess:
        sess.run(weights.assign([3.0, 4.0]))
        tf.train.Saver([weights]).save(sess, path)
    op, feed = framework.assign_from_checkpoint(path, {"weights": weights})
    values, more = framework.assign_from_values({"weights": np.array([5.0, 6.0], np.float32)})
    names = [name for name, _ in framework.list_variables(path)]
    with tf.Session() as sess:
        sess.run(op, feed)
        first = sess.run(weights)
        sess.run(values, more)
        return [tf.constant(first), tf.constant(sess.run(weights)), tf.constant(names)]


@part
def framework_partitioned_checkpoint():
    folder = tempfile.mkdtemp()
    with tf.Graph().as_default(), tf.Session() as sess:
        whole = tf.get_variable("whole", initializer=numbers(4, 2))
        sess.run(whole.initializer)
        path = tf.train.Saver().save(sess, os.path.join(folder, "model"))
    two = tf.fixed_size_partitioner(2)
    pieces = tf.get_variable("pieces", [4, 2], partitioner=two, initializer=tf.zeros_initializer())
    assign, feeds = framework.assign_from_checkpoint(path, {"whole": list(pieces)})
    with tf.Session() as sess:
        sess.run(assign, feeds)
        return [tf.constant(value) for value in sess.run(list(pieces))]


@part
def image_rotate_gradient():
    weights = tf.get_variable("picture", [1, 5, 5, 1])
    return tf.reduce_mean(tf.square(image.rotate(weights, 0.4, "BILINEAR") - 0.3))


@part
def learn_vocabulary():
    words = learn.preprocessing.VocabularyProcessor(4, min_frequency=0)
    ids = np.array(list(words.fit_transform(["one two three", "two four", "five"])))
    return [tf.constant(ids), tf.constant(len(words.vocabulary_)), tf.constant(list(words.reverse(ids))[0])]


@part
def graph_editor_replace():
    weights = tf.get_variable("weights", [3])
    inputs = tf.identity(weights)
    loss = tf.reduce_mean(tf.square(tf.exp(inputs) - 0.3))
    return contrib.graph_editor.graph_replace(loss, {inputs: 2.0 * weights})


@part
def graph_editor_copy():
    inputs = numbers(3)
    made = tf.exp(inputs)
    copied, info = contrib.graph_editor.copy(contrib.graph_editor.sgv([inputs.op, made.op]), dst_scope="copied")
    return [info.transformed(made), tf.constant(copied.outputs[0].name)]


@part
def copy_graph_op():
    with tf.Graph().as_default():
        made = tf.reduce_sum(tf.exp(numbers(3)))
    return [contrib.copy_graph.copy_op_to_graph(made, tf.get_default_graph(), [])]


for each in PARTS:
    with tf.Graph().as_default():
        print(each.__name__, run(each))
