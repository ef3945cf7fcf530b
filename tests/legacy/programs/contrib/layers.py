"""tf.contrib's layers, slim, feature columns, initializers and losses."""
from __future__ import print_function

import tensorflow as tf
from helpers.five_steps import classes, main, numbers, part, parts
from tensorflow.contrib import layers, losses, slim
from tensorflow.contrib.framework import add_arg_scope, arg_scope
from tensorflow.contrib.losses import metric_learning
from tensorflow.contrib.slim import nets


def size(tensor):
    return tf.reduce_mean(tf.square(tensor - 0.3))


# One layer on pictures of 6 x 6 pixels and 4 channels

PICTURES = {
    "layers_conv2d": lambda x: layers.conv2d(x, 3, 3, normalizer_fn=layers.batch_norm),
    "layers_conv2d_transpose": lambda x: layers.conv2d_transpose(x, 3, 3, stride=2),
    "layers_separable_conv2d": lambda x: layers.separable_conv2d(x, 3, 3, 2),
    "layers_conv2d_in_plane": lambda x: layers.conv2d_in_plane(x, 3),
    "layers_batch_norm": lambda x: layers.batch_norm(x, scale=True, decay=0.9),
    "layers_batch_norm_unfused": lambda x: layers.batch_norm(x, fused=False, updates_collections=None),
    "layers_batch_norm_renorm": lambda x: layers.batch_norm(x, renorm=True, fused=False),
    "layers_layer_norm": lambda x: layers.layer_norm(x),
    "layers_instance_norm": lambda x: layers.instance_norm(x),
    "layers_group_norm": lambda x: layers.group_norm(x, groups=2),
    "layers_pools": lambda x: layers.fully_connected(
        layers.flatten(tf.concat([layers.max_pool2d(x, 2), layers.avg_pool2d(x, 2)], 3)), 3
    ),
    "layers_maxout": lambda x: layers.fully_connected(layers.flatten(layers.maxout(x, 2)), 3),
    "layers_spatial_softmax": lambda x: layers.spatial_softmax(layers.conv2d(x, 3, 3)),
    "layers_gdn": lambda x: layers.gdn(layers.conv2d(x, 3, 3)),
    "layers_unit_norm": lambda x: layers.unit_norm(layers.conv2d(x, 3, 3), 3),
    "layers_scale_gradient": lambda x: layers.scale_gradient(layers.conv2d(x, 3, 3), 0.5),
    "layers_repeat_and_stack": lambda x: layers.stack(
        layers.flatten(layers.repeat(x, 2, layers.conv2d, 3, 3)), layers.fully_connected, [5, 2]
    ),
    "layers_bias_add": lambda x: layers.bias_add(x, activation_fn=tf.tanh),
    "slim_batch_norm": lambda x: slim.batch_norm(slim.conv2d(x, 3, [3, 3]), is_training=False),
    "slim_lenet_like": lambda x: slim.fully_connected(slim.flatten(slim.max_pool2d(slim.conv2d(x, 3, [3, 3]), 2)), 3),
}
parts(PICTURES, lambda layer: size(layer(numbers(3, 6, 6, 4))))


@part
def layers_convolution_1d_and_3d():
    line = layers.convolution1d(numbers(2, 6, 3), 4, 3)
    volume = layers.conv3d(numbers(2, 4, 4, 4, 2), 3, 2)
    return size(line) + size(volume) + size(layers.conv3d_transpose(volume, 2, 2))


@part
def layers_regularizers():
    with arg_scope([layers.fully_connected], weights_regularizer=layers.l1_l2_regularizer(0.1, 0.2)):
        out = layers.fully_connected(numbers(3, 4), 5, biases_regularizer=layers.l1_regularizer(0.3))
        out = layers.fully_connected(out, 2, weights_regularizer=layers.sum_regularizer([layers.l2_regularizer(0.1)]))
    return size(out) + tf.losses.get_regularization_loss()


@part
def layers_apply_regularization():
    layers.fully_connected(numbers(3, 4), 5)
    return layers.apply_regularization(layers.l2_regularizer(0.5), tf.trainable_variables())


@part
def layers_initializers():
    made = [
        layers.xavier_initializer(seed=1),
        layers.xavier_initializer(uniform=False, seed=2),
        layers.variance_scaling_initializer(seed=3),
        layers.variance_scaling_initializer(2.0, "FAN_AVG", True, seed=4),
    ]
    return [initializer([4, 3]) for initializer in made]


@part
def layers_embeddings():
    words = classes(7, 3, 4)
    bag = layers.bow_encoder(words, 7, 5)
    sequence = layers.embed_sequence(words, 7, 5, scope="sequence")
    unique = layers.embedding_lookup_unique(tf.get_variable("table", [7, 5]), words)
    return size(bag) + size(sequence) + size(unique)


@part
def layers_safe_embedding_lookup_sparse():
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 3, -1], tf.int64), [3, 2])
    return size(layers.safe_embedding_lookup_sparse([tf.get_variable("table", [7, 5])], ids, combiner="sum"))


@part
def layers_one_hot_and_dense_to_sparse():
    return [layers.one_hot_encoding(classes(4, 3), 4), layers.dense_to_sparse(classes(3, 2, 2)).values]


@part
def layers_optimize_loss():
    loss = size(layers.fully_connected(numbers(3, 4), 5))
    step = tf.train.get_or_create_global_step()
    layers.optimize_loss(
        loss, step, 0.1, "Adam", clip_gradients=1.0, learning_rate_decay_fn=lambda rate, at: tf.train.exponential_decay(rate, at, 2, 0.5)
    )
    layers.summarize_activations()
    return loss


@part
def layers_legacy_and_legacy_fully_connected():
    return size(layers.legacy_fully_connected(numbers(3, 4), 5, activation_fn=tf.nn.relu))


@part
def layers_rev_block():
    left, right = layers.rev_block(
        numbers(3, 4), numbers(3, 4, seed=1), lambda x: layers.fully_connected(x, 4, scope="f"), lambda x: layers.fully_connected(x, 4, scope="g"), 2
    )
    return size(left) + size(right)


# feature columns


def features():
    return {
        "age": numbers(3, 1),
        "word": tf.SparseTensor([[0, 0], [1, 0], [2, 0]], tf.constant(["a", "b", "a"]), [3, 1]),
        "other": tf.SparseTensor([[0, 0], [1, 0], [2, 1]], tf.constant(["x", "y", "z"]), [3, 2]),
        "id": tf.SparseTensor([[0, 0], [1, 0], [2, 1]], tf.constant([1, 2, 3], tf.int64), [3, 2]),
    }


def columns():
    word = layers.sparse_column_with_hash_bucket("word", 5)
    other = layers.sparse_column_with_keys("other", ["x", "y", "z"])
    return word, other, layers.sparse_column_with_integerized_feature("id", 4)


@part
def columns_input():
    word, other, number = columns()
    age = layers.real_valued_column("age")
    chosen = [
        age,
        layers.bucketized_column(age, [-0.5, 0.5]),
        layers.embedding_column(word, 3, combiner="sum"),
        layers.one_hot_column(other),
        layers.embedding_column(number, 2),
    ]
    return size(layers.input_from_feature_columns(features(), chosen))


@part
def columns_weighted_sum():
    word, other, _ = columns()
    crossed = layers.crossed_column([word, other], 10)
    chosen = [word, other, crossed, layers.real_valued_column("age")]
    return size(layers.weighted_sum_from_feature_columns(features(), chosen, 2)[0])


@part
def columns_joint():
    word, other, _ = columns()
    return size(layers.joint_weighted_sum_from_feature_columns(features(), [word, other], 2)[0])


# slim


@part
def slim_nets_resnet_arg_scope():
    blocks = [nets.resnet_v1.resnet_v1_block("block1", base_depth=2, num_units=1, stride=2)]
    with slim.arg_scope(nets.resnet_utils.resnet_arg_scope(weight_decay=0.01)):
        net, ends = nets.resnet_v1.resnet_v1(numbers(2, 16, 16, 3), blocks, 4, is_training=True, include_root_block=False)
    return size(net) + size(ends["predictions"]) + tf.losses.get_regularization_loss()


@part
def slim_nets_resnet_v2():
    blocks = [nets.resnet_v2.resnet_v2_block("block1", base_depth=2, num_units=2, stride=1)]
    with slim.arg_scope(nets.resnet_utils.resnet_arg_scope()):
        net, _ = nets.resnet_v2.resnet_v2(numbers(2, 16, 16, 3), blocks, 4, is_training=False)
    return size(net)


@part
def slim_learning():
    loss = losses.mean_squared_error(slim.fully_connected(numbers(3, 4), 2), tf.ones([3, 2]))
    train = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1), clip_gradient_norm=1.0)
    with tf.control_dependencies([train]):
        return [tf.identity(loss) * 0.0 + tf.cast(slim.get_or_create_global_step() * 0, tf.float32)]


@part
def slim_own_arg_scope():
    @add_arg_scope
    def scaled(tensor, by=1.0):
        return tensor * by * tf.get_variable("scale", [])

    with arg_scope([scaled], by=3.0):
        return size(scaled(numbers(3, 4)))


# losses

LOSSES = {
    "losses_absolute_difference": losses.absolute_difference,
    "losses_cosine_distance": lambda made, wanted: losses.cosine_distance(tf.nn.l2_normalize(made, 1), wanted, 1),
    "losses_log": lambda made, wanted: losses.log_loss(tf.sigmoid(made), wanted),
    "losses_mean_pairwise": losses.mean_pairwise_squared_error,
    "losses_sigmoid": lambda made, wanted: losses.sigmoid_cross_entropy(made, wanted, label_smoothing=0.1),
    "losses_softmax": losses.softmax_cross_entropy,
    "losses_mean_squared_error": losses.mean_squared_error,
    "losses_sparse_softmax": lambda made, wanted: losses.sparse_softmax_cross_entropy(made, tf.argmax(wanted, 1)),
}
parts(LOSSES, lambda loss: loss(layers.fully_connected(numbers(3, 4), 5, None), tf.one_hot([1, 0, 4], 5)) + losses.get_total_loss(add_regularization_losses=False))

METRIC_LOSSES = {
    "losses_contrastive": lambda x: metric_learning.contrastive_loss(tf.constant([1, 0, 1]), x[:3], x[3:]),
    "losses_lifted_struct": lambda x: metric_learning.lifted_struct_loss(tf.constant([0, 0, 1, 1, 2, 2]), x),
    "losses_npairs": lambda x: metric_learning.npairs_loss(tf.constant([0, 1, 2]), x[:3], x[3:]),
    "losses_triplet_semihard": lambda x: metric_learning.triplet_semihard_loss(tf.constant([0, 0, 1, 1, 2, 2]), x),
}
parts(METRIC_LOSSES, lambda loss: loss(layers.fully_connected(numbers(6, 4), 5, None)))


if __name__ == "__main__":
    main()
