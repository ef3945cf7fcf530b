"""tf.contrib's optimizers, metrics, lookup, training, framework, image, learn and smaller parts."""
from __future__ import print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from helpers.five_steps import classes, main, numbers, part, parts
from tensorflow import contrib
from tensorflow.contrib import framework, image, learn, lookup, metrics, opt, training


def model():
    return tf.reduce_mean(tf.square(tf.layers.dense(tf.layers.dense(numbers(4, 3), 5, tf.tanh), 2) - 0.3))


OPTIMIZERS = {
    "opt_adamax": lambda: opt.AdaMaxOptimizer(0.1),
    "opt_adamw": lambda: opt.AdamWOptimizer(0.01, 0.1),
    "opt_add_sign": lambda: opt.AddSignOptimizer(0.1),
    "opt_lars": lambda: opt.LARSOptimizer(0.1, momentum=0.5),
    "opt_lazy_adam": lambda: opt.LazyAdamOptimizer(0.1),
    "opt_momentumw": lambda: opt.MomentumWOptimizer(0.01, 0.1, 0.9),
    "opt_moving_average": lambda: opt.MovingAverageOptimizer(tf.train.AdamOptimizer(0.1), 0.9),
    "opt_nadam": lambda: opt.NadamOptimizer(0.1),
    "opt_power_sign": lambda: opt.PowerSignOptimizer(0.1),
    "opt_reg_adagrad": lambda: opt.RegAdagradOptimizer(0.1),
    "opt_shampoo": lambda: opt.ShampooOptimizer(tf.train.get_or_create_global_step(), learning_rate=0.1),
    "opt_variable_clipping": lambda: opt.VariableClippingOptimizer(
        tf.train.GradientDescentOptimizer(0.5), {tf.trainable_variables()[0]: [0]}, 0.3
    ),
    "opt_weight_decay_class": lambda: opt.extend_with_decoupled_weight_decay(tf.train.AdamOptimizer)(
        learning_rate=0.01, weight_decay=0.1
    ),
}
parts(OPTIMIZERS, lambda optimizer: (model(), optimizer()))


@part
def opt_lazy_adam_sparse():
    loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(tf.get_variable("table", [6, 3]), [1, 3, 3]) - 0.3))
    return loss, opt.LazyAdamOptimizer(0.1)


@part
def opt_multitask():
    wrapped = opt.MultitaskOptimizerWrapper(tf.train.AdamOptimizer(0.1))
    pairs, _ = opt.clip_gradients_by_global_norm(wrapped.compute_gradients(model()), 0.1)
    return tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient, _ in pairs])


# metrics: the second run of each update


METRICS = {
    "metrics_accuracy": lambda: metrics.streaming_accuracy(classes(2, 6), tf.constant([0, 1, 1, 0, 1, 0])),
    "metrics_auc": lambda: metrics.streaming_auc(tf.abs(numbers(6)) / 3, tf.constant([0, 1, 1, 0, 1, 0])),
    "metrics_cohen_kappa": lambda: metrics.cohen_kappa(tf.constant([0, 1, 1, 0, 1, 0]), classes(2, 6), 2),
    "metrics_concat": lambda: metrics.streaming_concat(classes(5, 3)),
    "metrics_covariance": lambda: metrics.streaming_covariance(numbers(6), numbers(6, seed=1)),
    "metrics_f1": lambda: contrib.metrics.f1_score(tf.constant([0, 1, 1, 0, 1, 0]), tf.abs(numbers(6)) / 3),
    "metrics_mean_cosine": lambda: metrics.streaming_mean_cosine_distance(numbers(3, 4), numbers(3, 4, seed=1), 1),
    "metrics_mean_iou": lambda: metrics.streaming_mean_iou(classes(3, 6), tf.constant([0, 1, 1, 2, 1, 0]), 3),
    "metrics_pearson": lambda: metrics.streaming_pearson_correlation(numbers(6), numbers(6, seed=1)),
    "metrics_percentage_less": lambda: metrics.streaming_percentage_less(numbers(6), 0.5),
    "metrics_precision_recall": lambda: metrics.streaming_precision(classes(2, 6), tf.constant([0, 1, 1, 0, 1, 0])),
    "metrics_recall_at_k": lambda: metrics.streaming_sparse_recall_at_k(
        numbers(3, 5), tf.constant([[1], [2], [0]], tf.int64), 2
    ),
}


def metric(build):
    value, update = build()
    with tf.control_dependencies([update]):
        return [tf.identity(update)]


parts(METRICS, metric)


@part
def metrics_set_ops_and_histogram():
    left = tf.constant([[1, 2, 3]])
    return [metrics.set_size(metrics.set_intersection(left, tf.constant([[2, 3, 5]]))), metrics.confusion_matrix([0, 1], [1, 1])]


@part
def metrics_aggregate():
    values, updates = metrics.aggregate_metric_map({"loss": metrics.streaming_mean(numbers(3))})
    return [updates["loss"]]


# lookup


@part
def lookup_tables():
    words = tf.constant(["a", "b", "x"])
    ids = lookup.index_table_from_tensor(["a", "b", "c"], num_oov_buckets=2)
    back = lookup.index_to_string_table_from_tensor(["a", "b"], default_value="none")
    table = lookup.HashTable(lookup.KeyValueTensorInitializer(["a", "b"], [3, 4], value_dtype=tf.int64), -1)
    return [ids.lookup(words), back.lookup(tf.constant([1, 5], tf.int64)), table.lookup(words)]


@part
def lookup_mutable():
    table = lookup.MutableHashTable(tf.string, tf.int64, -1)
    dense = lookup.MutableDenseHashTable(tf.int64, tf.int64, -1, empty_key=-1, deleted_key=-2)
    with tf.control_dependencies([table.insert(["a"], [7]), dense.insert([3], [9])]):
        return [table.lookup(tf.constant(["a", "b"])), dense.lookup(tf.constant([3, 4], tf.int64)), table.size()]


@part
def lookup_files():
    path = os.path.join(tempfile.mkdtemp(), "words.txt")
    with open(path, "w") as file:
        file.write("red\ngreen\nblue\n")
    table = lookup.index_table_from_file(path, num_oov_buckets=1)
    old = lookup.string_to_index_table_from_file(path)
    return [table.lookup(tf.constant(["blue", "gray"])), old.lookup(tf.constant(["green"]))]


# training


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
def training_rejection_sample():
    return [tf.shape(training.weighted_resample([numbers(4, 2)], tf.constant([0.1, 0.2, 0.3, 0.4]), 1.0, seed=3)[1])]


@part
def training_stratified_sample():
    _, labels = training.stratified_sample(
        [numbers(3)], tf.constant(1), [0.5, 0.5], 2, init_probs=[0.0, 1.0], enqueue_many=False
    )
    return [tf.shape(labels)]


@part
def training_create_train_op():
    step = tf.train.get_or_create_global_step()
    op = training.create_train_op(model(), tf.train.AdamOptimizer(0.1), step, summarize_gradients=True)
    with tf.control_dependencies([op]):
        return [tf.identity(step) * 0]


@part
def training_clip_and_multiply():
    loss = model()
    pairs = tf.train.AdamOptimizer().compute_gradients(loss)
    pairs = training.multiply_gradients(training.clip_gradient_norms(pairs, 0.1), {tf.trainable_variables()[0]: 2.0})
    return loss + 0.01 * tf.add_n([tf.reduce_sum(gradient) for gradient, _ in pairs])


# framework


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
def framework_sort_and_ranks():
    return [framework.sort(numbers(2, 4), direction="DESCENDING"), framework.argsort(numbers(2, 4)), framework.with_shape([2, 4], numbers(2, 4))]


# image

PICTURE = 1.0 / (1.0 + np.arange(2 * 5 * 5 * 3).reshape(2, 5, 5, 3)).astype(np.float32)
IMAGES = {
    "image_rotate": lambda x: image.rotate(x, [0.3, -0.2], "BILINEAR"),
    "image_transform": lambda x: image.transform(x, [1.0, 0.2, 0.1, 0.0, 0.9, 0.3, 0.001, 0.0]),
    "image_translate": lambda x: image.translate(x, [1.0, -2.0]),
    "image_dense_warp": lambda x: image.dense_image_warp(x, numbers(2, 5, 5, 2)),
    "image_interpolate_spline": lambda x: image.interpolate_spline(
        numbers(1, 4, 2), numbers(1, 4, 1, seed=1), numbers(1, 3, 2, seed=2), 2
    ),
}
parts(IMAGES, lambda change: [change(tf.constant(PICTURE))])


@part
def image_rotate_gradient():
    weights = tf.get_variable("picture", [1, 5, 5, 1])
    return tf.reduce_mean(tf.square(image.rotate(weights, 0.4, "BILINEAR") - 0.3))


# learn, and smaller parts


@part
def learn_vocabulary():
    words = learn.preprocessing.VocabularyProcessor(4, min_frequency=0)
    ids = np.array(list(words.fit_transform(["one two three", "two four", "five"])))
    return [tf.constant(ids), tf.constant(len(words.vocabulary_)), tf.constant(list(words.reverse(ids))[0])]


@part
def learn_mode_keys():
    return [tf.constant([learn.ModeKeys.TRAIN, learn.ModeKeys.EVAL, learn.ModeKeys.INFER])]


@part
def nn_losses():
    made = tf.layers.dense(numbers(3, 4), 5)
    return tf.reduce_mean(contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits(made, tf.one_hot([1, 0, 4], 5)))


@part
def sparsemax_loss():
    made = tf.layers.dense(numbers(3, 4), 5)
    chosen = contrib.sparsemax.sparsemax(made)
    return tf.reduce_mean(contrib.sparsemax.sparsemax_loss(made, chosen, tf.one_hot([1, 0, 4], 5)))


@part
def integrate_odeint():
    return [contrib.integrate.odeint(lambda y, t: -y * t, tf.constant([1.0, 2.0]), tf.constant([0.0, 0.5, 1.0]))]


@part
def distributions_normal():
    mean = tf.get_variable("mean", [3])
    normal = contrib.distributions.MultivariateNormalDiag(mean, tf.ones([3]))
    return -tf.reduce_mean(normal.log_prob(numbers(4, 3)))


@part
def resampler_gradient():
    warp = tf.get_variable("warp", [2, 3, 2])
    return tf.reduce_mean(tf.square(contrib.resampler.resampler(tf.constant(PICTURE), 2.0 + warp)))


@part
def stateless_random():
    return [contrib.stateless.stateless_random_uniform([3], [1, 2])]


@part
def pruning_mask():
    weights = tf.get_variable("weights", [3, 4])
    masked = contrib.model_pruning.apply_mask(weights)
    return tf.reduce_mean(tf.square(masked - 0.3))


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
def framework_device_chooser():
    choose = framework.VariableDeviceChooser(num_tasks=2, job_name="ps", device_type="GPU")
    return [tf.constant([choose(None) for _ in range(3)])]


if __name__ == "__main__":
    main()
