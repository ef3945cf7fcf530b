"""Installs the shim from inside a program, where Keras 2 and slim are as if not installed, and prints what errors say."""
import json
import sys

sys.modules["tf_keras"] = sys.modules["tf_slim"] = None

from staging_tf1 import legacy

legacy.install()
legacy.install()
report = {"loaded by install": "tensorflow" in sys.modules}

import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib.slim import conv2d


def failing(action):
    try:
        action()
    except (AttributeError, RuntimeError) as error:
        return str(error)


report["area"] = tf.contrib.staging.StagingArea.__name__
report["eager"] = tf.executing_eagerly()
report["other arguments"] = failing(lambda: legacy.install(claim_version=True))
report["slim"] = [failing(lambda: conv2d(1)), failing(lambda: slim.fully_connected(1))]
report["estimator"] = failing(lambda: tf.estimator.Estimator)

import keras

if keras.__version__ >= "3":
    report["keras"] = [failing(lambda: tf.layers.dense), failing(lambda: tf.nn.rnn_cell.LSTMCell)]
report["there"] = tf.nn.relu.__name__
print(json.dumps(report))
