"""Written by hand: heads of tf.contrib.estimator, gradients clipped, and a TPUEstimator without a TPU."""
import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show

tf.logging.set_verbosity(tf.logging.ERROR)

rng = np.random.RandomState(9)
x = rng.normal(size=(64, 3)).astype(np.float32)
y = (x.sum(axis=1) > 0).astype(np.int64).reshape(-1, 1)


def input_fn(params):
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat(params.get("epochs")).batch(params["batch_size"])


HEADS = {
    "binary": lambda: tf.contrib.estimator.binary_classification_head(thresholds=[0.5]),
    "classes": lambda: tf.contrib.estimator.multi_class_head(3),
    "regression": lambda: tf.contrib.estimator.regression_head(),
    "logistic": lambda: tf.contrib.estimator.logistic_regression_head(),
    "poisson": lambda: tf.contrib.estimator.poisson_regression_head(),
}


def model_fn(features, labels, mode, params):
    head = HEADS[params["head"]]()
    optimizer = tf.contrib.estimator.clip_gradients_by_norm(tf.train.AdagradOptimizer(0.3), 0.5)

    def train_op_fn(loss):
        return optimizer.minimize(loss, tf.train.get_global_step())

    logits = tf.layers.dense(features, head.logits_dimension)
    if params["head"] in ("regression", "logistic", "poisson"):
        labels = tf.to_float(labels)
    return head.create_estimator_spec(
        features={"x": features}, mode=mode, logits=logits, labels=labels, train_op_fn=train_op_fn
    )


for name in sorted(HEADS):
    params = {"batch_size": 16, "head": name}
    estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp(), params=params)
    estimator.train(input_fn, hooks=[NumpyWeights()], steps=20)
    estimator = tf.estimator.Estimator(model_fn, estimator.model_dir, params=dict(params, epochs=1))
    show(name, estimator.evaluate(input_fn))


def tpu_model_fn(features, labels, mode, params):
    logits = tf.layers.dense(features, 1)
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.contrib.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(lambda labels, logits: {"bias": tf.metrics.mean(logits)}, [labels, logits])
        )
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
config = tf.contrib.tpu.RunConfig(
    model_dir=tempfile.mkdtemp(),
    tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=5, per_host_input_for_training=per_host),
)
estimator = tf.contrib.tpu.TPUEstimator(
    tpu_model_fn, config=config, use_tpu=False, train_batch_size=16, eval_batch_size=32
)
estimator.train(input_fn, hooks=[NumpyWeights()], max_steps=20)
show("tpu", estimator.evaluate(input_fn, steps=2))
