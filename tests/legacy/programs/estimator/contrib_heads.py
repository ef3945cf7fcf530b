"""Written by hand: heads of tf.contrib.estimator, gradients clipped, and a TPUEstimator without a TPU."""
import tempfile

import tensorflow as tf
from common import NumpyWeights, show
from common.heads import input_fn, try_in_turn

tf.logging.set_verbosity(tf.logging.ERROR)

try_in_turn(
    {
        "logistic": lambda: tf.contrib.estimator.logistic_regression_head(),
        "poisson": lambda: tf.contrib.estimator.poisson_regression_head(),
    }
)


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
