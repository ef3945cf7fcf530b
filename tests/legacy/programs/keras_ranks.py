"""Calls models of Keras on tensors of another rank, size or dtype than the one that they declare."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
GIVEN = tf.float32


def numbers(*shape, **dtype):
    return tf.constant(np.arange(np.prod(shape)).reshape(shape) % 7, **dtype or {"dtype": GIVEN})


def dense(units=2, **declared):
    return layers.Dense(units, kernel_initializer=tf.constant_initializer(0.1), **declared)


def sequential(*listed):
    return tf.keras.Sequential(list(listed))


def functional(shape, *listed):
    first = x = layers.Input(shape)
    for layer in listed:
        x = layer(x)
    return tf.keras.Model(first, x)


def conv():
    return layers.Conv2D(2, 2, kernel_initializer=tf.constant_initializer(0.1))


def lstm():
    return layers.LSTM(2, kernel_initializer=tf.constant_initializer(0.1), recurrent_initializer="zeros")


def two_inputs():
    inputs = [layers.Input([3]), layers.Input([3])]
    return tf.keras.Model(inputs, dense()(layers.Add()(inputs)))


def called_twice(model):
    model(numbers(2, 3))
    return model(numbers(2, 4, 3))


CASES = {
    "sequential": lambda: sequential(dense(input_dim=16))(numbers(8, 1, 16)),
    "sequential: a rank more at the end": lambda: sequential(dense(input_dim=16))(numbers(8, 16, 1)),
    "sequential: a rank less": lambda: sequential(dense(input_dim=1))(numbers(8)),
    "sequential: another size": lambda: sequential(dense(input_dim=16))(numbers(8, 15)),
    "sequential: InputLayer": lambda: sequential(layers.InputLayer([16]), dense())(numbers(8, 1, 16)),
    "sequential: InputLayer, conv": lambda: sequential(layers.InputLayer([4, 4, 1]), conv())(numbers(2, 6, 5, 1)),
    "sequential: nothing declared": lambda: called_twice(sequential(dense())),
    "sequential: batch size": lambda: sequential(dense(batch_input_shape=[4, 3]))(numbers(8, 3)),
    "sequential: flatten": lambda: sequential(layers.Flatten(input_shape=[2, 2]), dense())(numbers(3, 4)),
    "sequential: nested": lambda: sequential(sequential(dense(input_dim=3)), dense())(numbers(2, 4, 3)),
    "model": lambda: functional([16], dense())(numbers(8, 1, 16)),
    "model: one more of one": lambda: functional([1], dense())(numbers(8, 1, 1)),
    "model: last is one": lambda: functional([3, 1], dense())(numbers(8, 3)),
    "model: another size": lambda: functional([4, 4, 1], conv())(numbers(2, 6, 5, 1)),
    "model: other channels": lambda: functional([4, 4, 1], conv())(numbers(2, 6, 5, 3)),
    "model: longer": lambda: functional([5, 4], lstm())(numbers(2, 7, 4)),
    "model: nested": lambda: functional([7, 4], functional([5, 4], lstm()))(numbers(2, 9, 4)),
    "model: in a layer": lambda: layers.TimeDistributed(functional([3], dense()))(numbers(2, 4, 3)),
    "model: ids": lambda: functional([5], layers.Embedding(9, 2, "ones"), layers.Flatten())(numbers(2, 7)),
    "model: integers": lambda: functional([3], dense())(numbers(2, 3, dtype=tf.int32)),
    "model: two inputs": lambda: two_inputs()([numbers(2, 4, 3), numbers(2, 4, 3)]),
    "model: one of two inputs": lambda: two_inputs()([numbers(2, 3)]),
    "model: placeholder": lambda: functional([3], dense())(tf.placeholder(GIVEN, [None, None, 3])),
    "layer: too few": lambda: dense()(numbers(3)),
    "layer: conv": lambda: conv()(numbers(4, 4, 1)),
    "tf.layers: conv": lambda: tf.layers.conv2d(numbers(4, 4, 1), 2, 2),
    "tf.layers: Dense": lambda: tf.layers.Dense(2, kernel_initializer=tf.constant_initializer(0.1))(numbers(2, 4, 3)),
    "fit": lambda: fit(functional([3], dense()), np.ones([2, 3]), np.ones([2, 2])),
    "fit: another rank": lambda: fit(functional([3], dense()), np.ones([2, 1, 3]), np.ones([2, 1, 2])),
    "fit: a vector": lambda: fit(functional([1], dense(1)), np.ones([2]), np.ones([2])),
}


def fit(model, x, y):
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    return model(numbers(2, 2, x.shape[-1] if x.ndim > 1 else 1))


for name in sorted(CASES):
    tf.reset_default_graph()
    tf.keras.backend.clear_session()
    try:
        made = CASES[name]()
        if "placeholder" in name:
            print(name + ":", made.shape)
            continue
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            value = session.run(made)
        print(name + ":", list(value.shape), "%.4g" % np.sum(value))
    except (TypeError, ValueError) as error:
        print(name + ":", type(error).__name__)
