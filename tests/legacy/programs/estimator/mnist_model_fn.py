"""Digits with a model_fn: convolutions of tf.layers, a training hook, train_and_evaluate, and an export that is loaded."""
from __future__ import absolute_import, division, print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show


def digits(count, seed):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 4, count)
    images = rng.rand(count, 12, 12).astype(np.float32) * 0.3
    for image, label in zip(images, labels):
        image[label * 3 : label * 3 + 2, 2:10] += 0.7
    return images.reshape(count, 144), labels.astype(np.int32)


def model_fn(features, labels, mode, params):
    image = features["image"] if isinstance(features, dict) else features
    net = tf.reshape(image, [-1, 12, 12, 1])
    net = tf.layers.conv2d(net, 4, 5, padding="same", activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2, padding="same")
    net = tf.layers.dense(tf.layers.flatten(net), 16, activation=tf.nn.relu)
    net = tf.layers.dropout(net, 0.0, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf.layers.dense(net, 4)
    predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(
            mode=mode,
            predictions=predictions,
            export_outputs={"classify": tf.estimator.export.PredictOutput(predictions)},
        )
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.metrics.accuracy(labels=labels, predictions=predictions["classes"])
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    tf.identity(loss, "cross_entropy")
    tf.summary.scalar("train_accuracy", accuracy[1])
    optimizer = tf.train.AdamOptimizer(params["rate"])
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_or_create_global_step())
    )


class Losses(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs(["cross_entropy:0", tf.train.get_global_step()])

    def after_run(self, run_context, run_values):
        loss, step = run_values.results
        if step % 10 == 1:
            print("step %d loss %.5f" % (step, loss))


def main(_):
    model_dir = os.path.join(tempfile.mkdtemp(), "model")
    train_x, train_y = digits(160, 0)
    test_x, test_y = digits(40, 1)
    classifier = tf.estimator.Estimator(
        model_fn=model_fn,
        model_dir=model_dir,
        params={"rate": 0.003},
        config=tf.estimator.RunConfig(save_checkpoints_steps=20, log_step_count_steps=10, tf_random_seed=7),
    )

    def train_input_fn():
        dataset = tf.data.Dataset.from_tensor_slices((train_x, train_y)).batch(16).repeat()
        return dataset.make_one_shot_iterator().get_next()

    def test_input_fn():
        return tf.data.Dataset.from_tensor_slices((test_x, test_y)).batch(20)

    logged = tf.train.LoggingTensorHook(tensors={"loss": "cross_entropy"}, every_n_iter=10)
    train_spec = tf.estimator.TrainSpec(train_input_fn, max_steps=40, hooks=[logged, Losses(), NumpyWeights()])
    eval_spec = tf.estimator.EvalSpec(test_input_fn, steps=None, start_delay_secs=0, throttle_secs=0)
    metrics, _ = tf.estimator.train_and_evaluate(classifier, train_spec, eval_spec)
    show("test", metrics)
    image = tf.placeholder(tf.float32, [None, 144])
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"image": image})
    exported = classifier.export_savedmodel(os.path.join(model_dir, "export"), receiver)
    with tf.Session(graph=tf.Graph()) as sess:
        loaded = tf.saved_model.loader.load(sess, [tf.saved_model.tag_constants.SERVING], exported.decode())
        signature = loaded.signature_def["classify"]
        fed = {signature.inputs["image"].name: test_x[:5]}
        print(sess.run(signature.outputs["classes"].name, fed).tolist(), test_y[:5].tolist())


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
