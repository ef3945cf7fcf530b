"""Installs the shim from inside a program, where Keras 2 and tf.contrib are as if not installed, and prints what errors say."""
import json
import os
import sys

sys.modules["tf_keras"] = None
os.environ["STAGING_TF1_CACHE"] = os.path.join(os.sep, "nothing", "here")

from staging_tf1 import legacy

legacy.install()
legacy.install()
report = {"loaded by install": "tensorflow" in sys.modules}

import tensorflow as tf


def failing(action):
    try:
        action()
    except (AttributeError, ImportError, RuntimeError) as error:
        return str(error)


report["area"] = tf.contrib.staging.StagingArea.__name__
report["eager"] = tf.executing_eagerly()
report["other arguments"] = failing(lambda: legacy.install(claim_version=True))


def slim():
    from tensorflow.contrib import slim


def mnist():
    from tensorflow.examples.tutorials.mnist import input_data


report["contrib"] = [failing(lambda: tf.contrib.layers), failing(slim), failing(mnist), failing(lambda: tf.contrib.lookups)]
report["estimator"] = failing(lambda: tf.estimator.Estimator)

from importlib.metadata import version

if version("keras") >= "3":
    report["keras"] = [failing(lambda: tf.layers.dense), failing(lambda: tf.nn.rnn_cell.LSTMCell)]
report["there"] = tf.nn.relu.__name__
print(json.dumps(report))
