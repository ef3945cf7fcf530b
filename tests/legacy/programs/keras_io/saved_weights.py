"""Prints the names of layers and weights, and what models, weights and optimizers are once they are loaded again."""
from __future__ import print_function

import os
import tempfile

import h5py
import keras
import numpy as np
from keras.layers import LSTM, Conv2D, Dense, Flatten, Input
from keras.models import Model, Sequential, load_model, model_from_json, model_from_yaml

folder = tempfile.mkdtemp()
path = os.path.join(folder, "weights.h5")
# As model.save_weights(path) of Keras 2.1.5 writes it.
with h5py.File(path, "w") as file:
    file.attrs["layer_names"] = [b"dense_1", b"dense_2"]
    file.attrs["backend"], file.attrs["keras_version"] = b"tensorflow", b"2.1.5"
    for name, value in (("dense_1", 1.0), ("dense_2", 2.0)):
        group = file.create_group(name)
        group.attrs["weight_names"] = [("%s/kernel:0" % name).encode(), ("%s/bias:0" % name).encode()]
        group[name + "/kernel:0"], group[name + "/bias:0"] = np.full((2, 2), value, "f4"), np.zeros(2, "f4")
keras.backend.clear_session()
x = Input((2,))
hidden = Dense(2)(x)
model = Model(x, Dense(2)(hidden))
model.load_weights(path, by_name=True)
print([layer.name for layer in model.layers], model.predict(np.full((1, 2), 3.0))[0, 0])


def scaled(y_true, y_pred):
    return keras.backend.mean(y_pred - y_true) * 2


keras.losses.scaled = scaled
layers = [Conv2D(2, 3, input_shape=(5, 5, 1), kernel_initializer="ones"), Flatten(), Dense(1, kernel_initializer="ones")]
model = Sequential(layers)
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "scaled")
images, targets = np.arange(50.0).reshape(2, 5, 5, 1), np.ones((2, 1))
print([weight.name for weight in model.weights], "%.4f" % model.evaluate(images, targets, verbose=0))
model.save(os.path.join(folder, "model.h5"))
again = load_model(os.path.join(folder, "model.h5"))
print("%.4f" % again.evaluate(images, targets, verbose=0), sorted(again.optimizer.get_config()))
for copy in (model_from_json(model.to_json()), model_from_yaml(model.to_yaml()), Sequential.from_config(model.get_config())):
    copy.set_weights(model.get_weights())
    print("%.4f" % copy.predict(images)[0, 0])
recurrent = Sequential([LSTM(2, input_shape=(3, 1), kernel_initializer="ones", recurrent_initializer="ones")])
print([weight.name for weight in recurrent.weights], "%.4f" % recurrent.predict(images[:, :3, 0])[0, 0])
with h5py.File(os.path.join(folder, "model.h5"), "r") as file:
    print(file.attrs["keras_version"].decode("utf8"), [name.decode() for name in file["model_weights"].attrs["layer_names"]])
