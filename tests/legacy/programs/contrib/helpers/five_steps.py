"""Trains each part of a file for five steps, and prints its losses and the sizes of its gradients.

A part is a function that builds a graph and returns a loss, a loss and an optimizer, or a list of tensors to print.
Trainable variables get values that depend on their names.
"""
from __future__ import print_function

import os
import zlib

import numpy as np
import tensorflow as tf

PARTS = []


def part(build):
    """Add a function to the parts of its file."""
    PARTS.append((build.__name__, build))
    return build


def parts(table, build):
    """Add one part for each row of a table: `build` gets its value."""
    for name in sorted(table):
        PARTS.append((name, lambda value=table[name]: build(value)))


def numbers(*shape, **how):
    """Return a constant of random numbers."""
    draw = np.random.RandomState(how.get("seed", 0))
    return tf.constant(draw.randn(*shape).astype(np.float32) * how.get("scale", 1.0))


def classes(count, *shape):
    """Return a constant of random integers below `count`."""
    return tf.constant(np.random.RandomState(5).randint(0, count, shape), tf.int32)


def main():
    """Run all parts, or those that the environment names."""
    chosen = os.environ.get("PARTS", "").split()
    here, PARTS[:] = list(PARTS), []  # the next file may run in the same process
    for name, build in here:
        if not chosen or name in chosen:
            with tf.Graph().as_default():
                print(name, _run(build))


def _run(build):
    built = build()
    if isinstance(built, list):
        with _session() as sess:
            return _shown(sess.run(built) for _ in range(2))
    loss, optimizer = built if isinstance(built, tuple) else (built, tf.train.GradientDescentOptimizer(0.1))
    variables = tf.trainable_variables()
    pairs = optimizer.compute_gradients(loss, variables)
    sizes = [tf.norm(tf.convert_to_tensor(gradient)) for gradient, _ in pairs if gradient is not None]
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS) + sizes + [loss]):
        train = optimizer.apply_gradients(pairs)
    with _session() as sess:
        before = (sess.run([loss] + sizes) for _ in range(1))
        steps = [_shown(before)]
        for _ in range(5):
            sess.run(train)
            steps.append("%.5g" % sess.run(loss))
        return " ".join(steps) + " of %d variables" % len(variables)


def _session():
    values = {}
    for variable in tf.trainable_variables():
        draw = np.random.RandomState(zlib.crc32(variable.op.name.encode()) & 0x7FFFFFFF)
        shape, dtype = variable.shape.as_list(), variable.dtype.base_dtype.as_numpy_dtype
        values[variable] = np.asarray(draw.randn(*shape) * 0.3, dtype)
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    sess.run([tf.local_variables_initializer(), tf.tables_initializer()])
    for variable, value in values.items():
        variable.load(value, sess)
    tf.train.start_queue_runners(sess, tf.train.Coordinator())
    return sess


def _shown(runs):
    shown = []
    for run in runs:
        for value in run:
            for figure in np.ravel(np.asarray(value)):
                shown.append(figure.decode() if isinstance(figure, bytes) else str(figure) if isinstance(figure, str) else "%.5g" % figure)
    return " ".join(shown)
