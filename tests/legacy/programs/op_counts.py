"""Counts the ops that each function adds to the graph, because the seeds of random ops depend on it.

Functions that make as many in TensorFlow 2 are left out, and those that make another number there, without random
numbers in usual programs.
"""
from __future__ import print_function

import numpy as np
import tensorflow as tf

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGES = np.ones([2, 8, 8, 3], np.float32)
CALLS = """
tf.split(x, 2, 2)
tf.split(x, [1, 3], 2)
tf.split(x, num_or_size_splits=3, axis=1)
tf.concat([x, x], 0)
x + 1.0
tf.reduce_sum(x)
tf.reduce_mean(x, 1)
tf.nn.softmax(x)
tf.nn.dropout(x, 0.5)
tf.nn.dropout(x, keep_prob=0.5)
tf.nn.dropout(x, rate=0.3)
tf.nn.dropout(x, keep_prob=tf.constant(0.5))
tf.layers.dropout(x, 0.5, training=True)
tf.layers.dropout(x, 0.5, training=t)
tf.nn.sampled_softmax_loss(tf.ones([9, 4]), tf.zeros([9]), tf.constant([[1], [2]]), x[:, 0], 3, 9)
tf.nn.nce_loss(tf.ones([9, 4]), tf.zeros([9]), tf.constant([[1], [2]]), x[:, 0], 3, 9)
tf.one_hot([1, 2], 3)
tf.zeros([2, 3])
tf.ones([2, 3])
tf.random_normal([2])
tf.random_uniform([2])
tf.random_uniform([2], maxval=3, dtype=tf.int32)
tf.truncated_normal([2])
tf.random_shuffle(x)
tf.multinomial(x[:, 0], 2)
tf.random_crop(im, [2, 4, 4, 3])
tf.get_variable("one", [2, 3])
tf.get_variable("two", [2, 3], initializer=tf.zeros_initializer())
tf.get_variable("three", [2, 3], initializer=tf.truncated_normal_initializer(stddev=0.1))
tf.get_variable("four", [2, 3], initializer=tf.orthogonal_initializer())
tf.get_variable("five", [2, 3], initializer=tf.variance_scaling_initializer())
tf.get_variable("six", initializer=np.ones([2], np.float32))
tf.get_variable("eight", [2, 3], initializer=tf.glorot_normal_initializer())
tf.get_variable("nine", [2, 3], use_resource=True)
tf.layers.dense(x[:, 0], 5, tf.nn.relu, kernel_regularizer=tf.nn.l2_loss)
tf.layers.conv2d(im, 4, 3, padding="same", activation=tf.nn.relu)
tf.layers.conv1d(x, 4, 2)
tf.layers.separable_conv2d(im, 4, 3)
tf.layers.batch_normalization(im, training=t)
tf.layers.batch_normalization(x, training=True)
tf.keras.layers.Conv2D(3, 3)(im)
tf.keras.layers.Dropout(0.5)(x, training=True)
tf.nn.rnn_cell.BasicLSTMCell(3)(x[:, 0], (tf.zeros([2, 3]), tf.zeros([2, 3])))
tf.nn.rnn_cell.LSTMCell(3)(x[:, 0], (tf.zeros([2, 3]), tf.zeros([2, 3])))
tf.nn.rnn_cell.LSTMCell(3, use_peepholes=True, num_proj=3)(x[:, 0], (tf.zeros([2, 3]), tf.zeros([2, 3])))
tf.nn.rnn_cell.GRUCell(3)(x[:, 0], tf.zeros([2, 3]))
tf.nn.rnn_cell.BasicRNNCell(3)(x[:, 0], tf.zeros([2, 3]))
tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.GRUCell(3), 0.5, 0.5, 0.5)(x[:, 0], tf.zeros([2, 3]))
tf.nn.static_rnn(tf.nn.rnn_cell.BasicLSTMCell(3), tf.unstack(x, axis=1), dtype=tf.float32)
tf.image.random_flip_left_right(im[0])
tf.image.random_flip_up_down(im[0])
tf.image.random_brightness(im[0], 0.2)
tf.image.random_contrast(im[0], 0.2, 1.8)
tf.image.random_saturation(im[0], 0.2, 1.8)
tf.image.random_hue(im[0], 0.2)
tf.train.shuffle_batch([x], 2, 10, 2)
tf.train.string_input_producer(["a"])
tf.train.slice_input_producer([x])
tf.data.Dataset.range(3).shuffle(3).batch(2).repeat().make_one_shot_iterator().get_next()
tf.distributions.Normal(0.0, 1.0).sample(2)
tf.distributions.Categorical(logits=x[:, 0]).sample()
tf.layers.conv2d(tf.layers.conv2d(im, 3, 3), 3, 3)
tf.nn.dropout(tf.nn.dropout(x, 0.5), 0.5)
tf.layers.batch_normalization(im, training=True)
tf.layers.batch_normalization(im, training=False)
tf.layers.conv2d(tf.layers.batch_normalization(im, training=True), 3, 3)
tf.layers.dense(tf.layers.dropout(tf.layers.flatten(im), training=True), 3)
tf.layers.conv2d(im, 4, 3, dilation_rate=2)
tf.layers.dense(x[:, 0], 5, kernel_regularizer=tf.keras.regularizers.l2(0.1))
tf.layers.dense(x[:, 0], 5, kernel_regularizer=tf.keras.regularizers.l1_l2(0.1, 0.1))
tf.keras.layers.BatchNormalization()(im, training=True)
tf.keras.layers.Embedding(5, 3, embeddings_regularizer="l1")(tf.constant([[1, 2]]))
tf.keras.Sequential([tf.keras.layers.Embedding(5, 3), tf.keras.layers.LSTM(4)])(tf.constant([[1, 2]]))
tf.keras.layers.SimpleRNN(3)(x)
tf.keras.Sequential([tf.keras.layers.Conv2D(2, 3, input_shape=[8, 8, 3]), tf.keras.layers.Flatten()])(im)
tf.keras.layers.Bidirectional(tf.keras.layers.GRU(3))(x)
tf.zeros([tf.shape(x)[0], 4])
tf.ones([3, tf.shape(x)[0], 2], tf.int32)
tf.reduce_mean(x[0, 0, 0])
tf.losses.mean_squared_error(x, x)
tf.losses.softmax_cross_entropy(x[0], x[0])
tf.nn.embedding_lookup_sparse(v, tf.SparseTensor([[0, 0]], [1], [1, 1]), tf.SparseTensor([[0, 0]], [1.0], [1, 1]))
tf.data.Dataset.range(6).shuffle(6).make_initializable_iterator().get_next()
""".strip().splitlines()
# These make other ops, but random ops behind them have the seeds of TensorFlow 1.
OTHER_OPS = """
tf.image.crop_to_bounding_box(im, 1, 2, 3, 3)
tf.image.crop_to_bounding_box(im, 1, 2, tf.shape(x)[1], 3)
tf.image.resize_image_with_crop_or_pad(im[0], 4, 10)
tf.image.resize_image_with_crop_or_pad(tf.placeholder(tf.float32, [None, None, 3]), 5, 5)
tf.image.per_image_standardization(im)
tf.one_hot([1, 2], 3, 1.0, 0.0)
tf.one_hot([1, 2], 3, on_value=5)
tf.random_gamma([3], 2.0)
tf.random_gamma([3], [2.0, 3.0], beta=2.0)
tf.keras.layers.UpSampling2D()(im)
tf.keras.layers.UpSampling2D()(tf.placeholder(tf.float32, [None, None, None, 3]))
tf.keras.layers.TimeDistributed(tf.keras.layers.Dense(3))(x)
tf.nn.embedding_lookup_sparse(tf.ones([5, 2]), tf.SparseTensor([[0, 0]], [1], [1, 1]), None, combiner="mean")
tf.feature_column.input_layer({"i": tf.constant([[1]])}, EMBEDDED)
""".strip().splitlines()
OTHER_OPS += """
tf.parse_single_example("", {"a": tf.FixedLenFeature([], tf.int64, 1)})
tf.parse_single_example("", {"a": tf.VarLenFeature(tf.int64), "b": tf.FixedLenFeature([2], tf.float32)})
tf.parse_example([""], {"a": tf.FixedLenFeature([], tf.int64)})
tf.parse_example([""], {"a": tf.VarLenFeature(tf.int64), "b": tf.FixedLenFeature([2], tf.float32, [1, 2])})
tf.eye(3)
tf.matrix_diag(x)
tf.keras.layers.BatchNormalization()(im)
""".strip().splitlines()
COLUMN = tf.feature_column.categorical_column_with_identity("i", 5)
EMBEDDED = [tf.feature_column.embedding_column(COLUMN, 3), tf.feature_column.indicator_column(COLUMN)]


def count(call):
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        names = dict(tf=tf, np=np, X=X, x=tf.constant(X), im=tf.constant(IMAGES))
        names["t"] = tf.placeholder_with_default(True, [])
        names["EMBEDDED"] = EMBEDDED
        names["v"] = tf.get_variable("v", initializer=np.ones([3, 3], np.float32))
        before = len(graph.get_operations())
        eval(call, names)
        made = graph.get_operations()[before:]
        if call in OTHER_OPS:
            tf.random_uniform([2])
            return ["behind", [op.get_attr("seed2") for op in graph.get_operations() if "seed2" in op.node_def.attr][-1]]
        return len(made), [op.get_attr("seed2") for op in made if "seed2" in op.node_def.attr]


for call in CALLS + OTHER_OPS:
    print(call, *count(call))

with tf.Graph().as_default(), tf.Session() as sess:
    tf.set_random_seed(5)
    ones = tf.ones([6])
    drawn = [tf.nn.dropout(ones, 0.5), tf.random_uniform([3]), tf.layers.dropout(ones, 0.3, training=True)]
    for value in sess.run(drawn):
        print(" ".join("%.4f" % each for each in value))
