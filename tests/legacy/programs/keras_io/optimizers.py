"""Prints what the optimizers of Keras learn with the settings that they have by themselves."""
from __future__ import print_function

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential

keras.backend.clear_session()
x, y = np.eye(4), np.array([[1.0], [2.0], [3.0], [4.0]])


def learned(optimizer):
    model = Sequential([Dense(1, input_shape=(4,), kernel_initializer="zeros")])
    model.compile(optimizer, "mse")
    model.fit(x, y, epochs=20, batch_size=4, verbose=0, shuffle=False)
    return np.abs(model.get_weights()[0]).mean()


for name in ("Adadelta", "Adagrad", "Adamax", "Nadam", "SGD", "RMSprop", "Adam"):
    print(name, "%.5f %.5f" % (learned(getattr(keras.optimizers, name)()), learned(name.lower())))
print("decay", "%.5f" % learned(keras.optimizers.SGD(lr=0.1, momentum=0.9, decay=0.1, nesterov=True, clipnorm=0.5)))
