"""The ops of tf.contrib's binaries, with gradients."""
import numpy as np
import tensorflow as tf
from tensorflow.contrib.image.python.ops import distort_image_ops
from tensorflow.contrib.image.python.ops import image_ops
from tensorflow.contrib.layers.python.ops import sparse_feature_cross_op
from tensorflow.contrib.reduce_slice_ops.python.ops import reduce_slice_ops
from tensorflow.contrib.text.python.ops import skip_gram_ops

rng = np.random.RandomState(0)


def show(name, *tensors):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for value in sess.run(list(tensors)):
            print(name, value.shape, " ".join("%.5g" % each for each in np.asarray(value).ravel()[:40]))


# Beam search
steps = rng.randint(1, 9, [5, 3, 4]).astype(np.int32)
parents = rng.randint(0, 4, [5, 3, 4]).astype(np.int32)
for lengths, end in (([5, 3, 1], 2), ([0, 4, 5], 7), ([5, 5, 9], 0)):
    show("gather_tree", tf.contrib.seq2seq.gather_tree(steps, parents, tf.constant(lengths), end))

# Images
images = tf.constant(rng.rand(2, 5, 6, 3).astype(np.float32))
for interpolation in ("NEAREST", "BILINEAR"):
    turned = tf.contrib.image.rotate(images, [0.3, -1.2], interpolation)
    show("rotate", turned, *tf.gradients(turned ** 2, images))
    moved = tf.contrib.image.transform(images, [1.1, 0.1, -0.5, 0.0, 0.9, 0.4, 0.01, 0.0], interpolation, output_shape=[4, 7])
    show("transform", moved)
    show("translate", tf.contrib.image.translate(images, [1.5, -1.0], interpolation))
show("hsv", distort_image_ops.adjust_hsv_in_yiq(images, 0.4, 1.3, 0.8))
show("dense warp", tf.contrib.image.dense_image_warp(images, tf.constant(rng.randn(2, 5, 6, 2).astype(np.float32))))

# Matching
distances = rng.rand(4, 6).astype(np.float32)
for valid, top in ((-1.0, -1), (2.0, -1), (-1.0, 2), (4.0, 9), (0.0, -1)):
    show("bipartite %g %d" % (valid, top), *image_ops.bipartite_match(distances, tf.constant([valid]), top))
show("bipartite high", *image_ops.bipartite_match(distances.T, tf.constant([-1.0])))

# Resampling
data = tf.constant(rng.rand(2, 4, 5, 3).astype(np.float32))
warp = tf.constant((rng.rand(2, 3, 7, 2) * 8 - 2).astype(np.float32))
sampled = tf.contrib.resampler.resampler(data, warp)
show("resampler", sampled, *tf.gradients(sampled ** 2, [data, warp]))

# Slices
rows = tf.constant(rng.rand(6, 3).astype(np.float32))
for name in ("sum", "prod", "max", "min"):
    reduce = getattr(reduce_slice_ops, "reduce_slice_" + name)
    show("slices " + name, reduce(rows, [[0, 2], [1, 5], [2, 6]], 0), reduce(rows, [[0, 1], [1, 3]], 1))
show("empty slices", reduce_slice_ops.reduce_slice_sum(rows, [[3, 3], [5, 2], [4, 9]], 0))

# Crossed features
names = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], ["a", "bc", "d"], [3, 2])
numbers = tf.SparseTensor([[0, 0], [1, 0], [2, 0], [2, 1]], tf.constant([5, -7, 8, 1 << 40], tf.int64), [3, 2])
dense = tf.constant([["x", "y"], ["z", "x"], ["v", "w"]])
for options in ({}, {"num_buckets": 1000}, {"hash_key": 956888297470}, {"num_buckets": 97, "hash_key": 3}):
    crossed = sparse_feature_cross_op.sparse_feature_cross([names, numbers, dense], hashed_output=True, **options)
    show("crossed", crossed.indices, crossed.values % 10000019, crossed.dense_shape)
text = sparse_feature_cross_op.sparse_feature_cross([names, numbers])
with tf.Session() as sess:
    print([value.decode() for value in sess.run(text.values)])

# Pairs of words
for emit in (False, True):
    tokens, labels = skip_gram_ops.skip_gram_sample(
        tf.constant([3, 1, 4, 1, 5, 9, 2]), min_skips=2, max_skips=2, emit_self_as_target=emit)
    show("skip grams", tokens, labels)
tokens, labels = skip_gram_ops.skip_gram_sample(tf.constant([3, 1, 4, 1, 5, 9, 2]), 1, 1, start=1, limit=3)
show("skip grams", tokens, labels)

# Zeros
for resource in (False, True):
    variable = tf.get_variable("zeros_%d" % resource, [2, 3], use_resource=resource, initializer=tf.zeros_initializer())
    with tf.Session() as sess:
        zero = tf.contrib.framework.zero_initializer(variable)
        sess.run(zero)
        print(sess.run(variable).tolist())
        try:
            sess.run(zero)
        except tf.errors.OpError as error:
            print("input is already initialized" in str(error))
