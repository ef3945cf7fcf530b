"""A linear model with one of several heads, as in a program that tries them in turn."""
import tempfile

import numpy as np
import tensorflow as tf

from common import NumpyWeights, show

rng = np.random.RandomState(9)
x = rng.normal(size=(64, 3)).astype(np.float32)
y = (x.sum(axis=1) > 0).astype(np.int64).reshape(-1, 1)


def input_fn(params):
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat(params.get("epochs")).batch(params["batch_size"])


def model_fn(features, labels, mode, params):
    head = params["make_head"]()
    optimizer = tf.contrib.estimator.clip_gradients_by_norm(tf.train.AdagradOptimizer(0.3), 0.5)

    def train_op_fn(loss):
        return optimizer.minimize(loss, tf.train.get_global_step())

    logits = tf.layers.dense(features, head.logits_dimension)
    if params["head"] in ("regression", "logistic", "poisson"):
        labels = tf.to_float(labels)
    return head.create_estimator_spec(
        features={"x": features}, mode=mode, logits=logits, labels=labels, train_op_fn=train_op_fn
    )


def try_in_turn(heads):
    for name in sorted(heads):
        params = {"batch_size": 16, "head": name, "make_head": heads[name]}
        estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp(), params=params)
        estimator.train(input_fn, hooks=[NumpyWeights()], steps=20)
        estimator = tf.estimator.Estimator(model_fn, estimator.model_dir, params=dict(params, epochs=1))
        show(name, estimator.evaluate(input_fn))
