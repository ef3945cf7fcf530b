"""A benchmark loop: staged inputs, staged gradients, and as many warm-up puts as there are stages."""
from __future__ import print_function

import numpy as np
import tensorflow as tf
from tensorflow.contrib import staging

NUM_WARMUP = 2
NUM_STEPS = 6

batch = tf.placeholder(tf.float32, [4, 3])
image_stage = staging.StagingArea([tf.float32], shapes=[[4, 3]], capacity=2)
image_put = image_stage.put([batch])
images = image_stage.get()[0]

w = tf.get_variable("w", [3, 2], initializer=tf.constant_initializer(0.5))
loss = tf.reduce_sum(tf.square(tf.matmul(images, w)))
(gradient,) = tf.gradients(loss, [w])

grad_stage = staging.StagingArea([tf.float32], shapes=[[3, 2]])
grad_put = grad_stage.put([gradient])
(staged_gradient,) = grad_stage.get()
global_step = tf.train.get_or_create_global_step()
apply_op = tf.group(w.assign_sub(0.01 * staged_gradient), tf.assign_add(global_step, 1))

enqueue_ops = [image_put, grad_put]
train_op = tf.group(apply_op, *enqueue_ops)


def make_batch(i):
    return np.full((4, 3), 0.1 * (i % 3 + 1), np.float32)


with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1)) as sess:
    sess.run(tf.global_variables_initializer())
    for i in range(NUM_WARMUP):
        sess.run(enqueue_ops[: i + 1], {batch: make_batch(i)})
    for i in range(NUM_STEPS):
        sess.run(train_op, {batch: make_batch(NUM_WARMUP + i)})
    step, weights = sess.run([global_step, w])
    print("step %d images %d gradients %d" % (step, sess.run(image_stage.size()), sess.run(grad_stage.size())))
    print("sign", (weights < 0.5).all(), "shape", weights.shape)
    sess.run([image_stage.clear(), grad_stage.clear()])
