"""Loops that run a session, and go through variables or cases: none adds the same op twice."""
import numpy as np
import tensorflow.compat.v1 as tf


def load(stored, sess):
    for layer in sorted(stored):
        with tf.variable_scope(layer, reuse=True):
            for name, value in stored[layer].items():
                sess.run(tf.get_variable(name).assign(value))


def copy(sources, targets, sess):
    for source, target in zip(sources, targets):
        sess.run(tf.assign(target, source))


def prune(weights, settings, sess, smallest):
    for setting in settings:
        reset = []
        for weight in weights:
            reset.append(tf.assign(weight, smallest(weight, setting)))
        sess.run(reset)


class Mean(object):
    def __init__(self, shape, sess):
        self.value = tf.get_variable("mean%d" % len(shape), shape, initializer=tf.zeros_initializer())
        self.new = tf.placeholder(tf.float32, shape)
        self.update = self.value.assign(self.new)
        sess.run(self.value.initializer)


def train(rate, steps, drops, sess):
    step, drop = 0, drops.pop()
    while step < steps:
        if step == drop + 1:
            sess.run(tf.assign(rate, 0.1))
            drop = drops.pop()
        sess.run(rate)
        step += 1


with tf.Session() as session:
    for shape in ([2], [2, 3]):
        mean = Mean(shape, session)
        session.run(mean.update, {mean.new: np.ones(shape)})
    a = tf.get_variable("a", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.ones_initializer())
    session.run(tf.global_variables_initializer())
    copy([a], [b], session)
    train(a, 10, [8, 4], session)
    prune([a, b], (0.1, 0.2), session, lambda weight, setting: tf.maximum(weight, setting))
    load({"": {"a": 1.0}}, session)
