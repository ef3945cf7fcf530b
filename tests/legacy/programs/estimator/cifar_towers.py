"""Pictures on two towers: a staging area for each, gradients averaged by hand, a moving average, a scaffold with a saver."""
from __future__ import absolute_import, division, print_function

import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show
from tensorflow.contrib import staging

TOWERS = ["/cpu:0", "/cpu:0"]
BATCH = 16


def pictures(count, seed):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 3, count)
    images = rng.rand(count, 8, 8, 3).astype(np.float32) * 0.5
    for image, label in zip(images, labels):
        image[:, :, label] += 0.5
    return images, labels.astype(np.int32)


def input_fn(seed, epochs):
    images, labels = pictures(96, seed)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat(epochs).batch(BATCH, drop_remainder=True)
    images, labels = tf.data.make_one_shot_iterator(dataset).get_next()
    return tf.split(images, len(TOWERS)), tf.split(labels, len(TOWERS))


def inference(images):
    net = tf.layers.conv2d(images, 4, 3, activation=tf.nn.relu, name="conv")
    net = tf.layers.flatten(tf.layers.average_pooling2d(net, 2, 2))
    return tf.layers.dense(net, 3, name="logits")


def average(tower_gradients):
    averaged = []
    for pairs in zip(*tower_gradients):
        gradient = tf.reduce_mean(tf.stack([gradient for gradient, _ in pairs]), axis=0)
        averaged.append((gradient, pairs[0][1]))
    return averaged


class WarmUp(tf.train.SessionRunHook):
    """Fills the areas before the first step, and one element for each step."""

    def __init__(self, put):
        self.put = put

    def after_create_session(self, session, coord):
        session.run(self.put)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.put)


def model_fn(features, labels, mode):
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    losses, gradients, logits, puts = [], [], [], []
    for number, device in enumerate(TOWERS):
        with tf.variable_scope("", reuse=bool(number)), tf.device(device), tf.name_scope("tower_%d" % number):
            images, classes = features[number], labels[number]
            if mode == tf.estimator.ModeKeys.TRAIN:
                area = staging.StagingArea([tf.float32, tf.int32], [images.shape, classes.shape])
                puts.append(area.put([images, classes]))
                images, classes = area.get()
            logits.append(inference(images))
            losses.append(tf.losses.sparse_softmax_cross_entropy(classes, logits[-1]))
            if mode == tf.estimator.ModeKeys.TRAIN:
                gradients.append(optimizer.compute_gradients(losses[-1]))
    loss = tf.reduce_mean(losses)
    if mode == tf.estimator.ModeKeys.EVAL:
        right = tf.metrics.accuracy(tf.concat(labels, 0), tf.argmax(tf.concat(logits, 0), 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": right})
    step = tf.train.get_global_step()
    averages = tf.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies([optimizer.apply_gradients(average(gradients), step)]):
        train_op = averages.apply(tf.trainable_variables())
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        training_hooks=[WarmUp(tf.group(*puts))],
        scaffold=tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=2)),
    )


def main(_):
    config = tf.estimator.RunConfig(tempfile.mkdtemp(), save_checkpoints_steps=10, save_summary_steps=5)
    classifier = tf.estimator.Estimator(model_fn, config=config)
    classifier.train(lambda: input_fn(0, None), hooks=[NumpyWeights()], steps=25)
    show("test", classifier.evaluate(lambda: input_fn(1, 1)))
    print(sorted(name for name in classifier.get_variable_names() if "Moving" in name))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
