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


# Their steps do not depend on the number of steps, which the others count while they read it.
for name in ("Adadelta", "Adagrad", "SGD", "RMSprop"):
    print(name, "%.5f %.5f" % (learned(getattr(keras.optimizers, name)()), learned(name.lower())))
for name in ("Adam", "Adamax", "Nadam"):
    config = getattr(keras.optimizers, name)().get_config()
    print(name, " ".join("%s %.7f" % (key, config[key]) for key in sorted(config) if not isinstance(config[key], bool)))
