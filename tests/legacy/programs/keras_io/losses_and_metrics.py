"""Prints every loss and metric of Keras for labels 0 and 1, and for predictions of which some are masked."""
from __future__ import print_function

import keras
import numpy as np
from keras.layers import Dense, Masking, TimeDistributed
from keras.models import Sequential

keras.backend.clear_session()
LOSSES = """mean_squared_error mean_absolute_error mean_absolute_percentage_error mean_squared_logarithmic_error
squared_hinge hinge categorical_hinge logcosh categorical_crossentropy binary_crossentropy kullback_leibler_divergence
poisson cosine_proximity""".split()
x, y = np.arange(6.0).reshape(3, 2) / 8, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])

for loss in LOSSES:
    model = Sequential([Dense(2, input_shape=(2,), kernel_initializer=keras.initializers.Constant([[0.5, 0.1], [0.2, 0.4]]))])
    model.compile("sgd", loss, metrics=["accuracy"])
    print(loss, "%.5f %.5f" % tuple(model.evaluate(x, y, verbose=0)))

words = np.array([[[1.0, 2.0], [0.0, 0.0]], [[3.0, 1.0], [2.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]])
masked = Sequential([Masking(input_shape=(2, 2)), TimeDistributed(Dense(1, kernel_initializer="ones"))])
masked.compile("sgd", "mse", sample_weight_mode="temporal")
print("masked %.5f" % masked.train_on_batch(words, np.ones((3, 2, 1))))
weights = np.array([[1.0, 2.0], [3.0, 0.5], [1.0, 1.0]])
print("masked and weighted %.5f" % masked.train_on_batch(words, np.ones((3, 2, 1)), sample_weight=weights))
