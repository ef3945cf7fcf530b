"""Installed libraries that expect TensorFlow 2, in a program that expects TensorFlow 1."""
import json
import sys

import tensorflow as tf

report = {}


def attempt(name, use):
    try:
        __import__(name)
    except ImportError as error:
        if error.name != name:
            raise
        report[name] = "not installed"
    else:
        report[name] = use(sys.modules[name])


def probability(tfp):
    with tf.Session() as sess:
        return round(float(sess.run(tfp.distributions.Normal(0.0, 1.0).log_prob(0.0))), 4)


def board(module):
    from tensorboard.compat import tf2

    return hasattr(tf2, "summary") and not hasattr(tf2, "placeholder")


def gin(module):
    module.external_configurable(tf.train.GradientDescentOptimizer, module="tf.train")
    module.parse_config("tf.train.GradientDescentOptimizer.learning_rate = 0.5")
    return type(module.query_parameter("tf.train.GradientDescentOptimizer.learning_rate")).__name__


def layers(tf_keras):
    return [tf.layers.dense(tf.zeros([2, 3]), 4).shape[1].value, tf.nn.rnn_cell.LSTMCell(3).state_size.c]


attempt("tensorflow_probability", probability)
attempt("tensorboard", board)
attempt("gin", gin)
attempt("tf_keras", layers)
print(json.dumps(report))
