"""Prints the losses of models with two outputs, weighted samples and classes, and regularizers."""
from __future__ import print_function

import keras
import numpy as np
from keras import backend as K
from keras.layers import BatchNormalization, Dense, Input, Lambda, add
from keras.models import Model, Sequential

keras.backend.clear_session()
x = np.linspace(-1, 1, 24).reshape(8, 3)
ones = dict(kernel_initializer="ones")


def show(name, values):
    print(name, " ".join("%.5f" % value for value in np.ravel(values)))


inputs = Input((3,))
hidden = Dense(2, activation="tanh", activity_regularizer=keras.regularizers.l1(0.01), **ones)(inputs)
first, second = Dense(1, name="first", **ones)(hidden), Dense(1, name="second", kernel_regularizer="l2", **ones)(hidden)
model = Model(inputs, [first, second])
model.compile("sgd", {"first": "mse", "second": "mae"}, metrics=["mae"], loss_weights=[1.0, 0.5])
print(model.metrics_names)
show("the same layer twice", Model(inputs, add([hidden, hidden])).predict(x)[0])
targets = [x.sum(1, keepdims=True), x[:, :1]]
# No step of training: it would change the weights that the regularizer reads meanwhile.
show("two outputs", model.test_on_batch(x, targets, sample_weight=[np.arange(8.0), np.ones(8)]))

classes = Sequential([Dense(3, activation="softmax", input_shape=(3,), **ones)])
classes.compile("sgd", "sparse_categorical_crossentropy", metrics=["acc"])
found = classes.fit(x, np.arange(8) % 3, 4, 2, 0, class_weight={0: 1.0, 1: 2.0, 2: 0.5}, shuffle=False, validation_split=0.25)
for name in sorted(found.history):
    show(name, found.history[name])

normed = Sequential([BatchNormalization(input_shape=(3,)), Dense(1, **ones)])
normed.compile("sgd", "mse")
show("predicted", normed.predict(x)[:3])
show("normed", normed.train_on_batch(x, x[:, :1]))

a, b = Input((3,)), Input((1,))
loss = Lambda(lambda t: K.sum(K.square(t[0] - t[1])), output_shape=(1,), name="loss")([Dense(1, **ones)(a), b])
scalar = Model([a, b], loss)
scalar.compile("sgd", {"loss": lambda y_true, y_pred: y_pred})
show("a scalar loss", scalar.train_on_batch([np.ones((4, 3)), np.zeros((4, 1))], np.zeros(4)))
