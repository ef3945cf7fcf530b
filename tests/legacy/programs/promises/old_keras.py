"""A program for Keras 2.2; prints what Keras 2.2.4 printed on TensorFlow 1.15.5."""
import json

import keras
import keras.backend as K
import numpy as np
import tensorflow as tf
from keras import losses, objectives
from keras.applications.vgg16 import VGG16
from keras.backend.tensorflow_backend import set_session
from keras.callbacks import ModelCheckpoint
from keras.engine import InputSpec
from keras.engine.topology import Layer
from keras.layers import *
from keras.layers.convolutional import Conv2D as SameConv2D
from keras.layers.core import Dense as SameDense
from keras.layers.merge import concatenate as same_concatenate
from keras.layers.normalization import BatchNormalization as SameBatchNormalization
from keras.models import Model, Sequential, load_model
from keras.optimizers import SGD
from keras.preprocessing import sequence
from keras.preprocessing.image import ImageDataGenerator
from keras.utils import np_utils
from keras.utils.generic_utils import get_custom_objects

sess = tf.Session()
set_session(sess)
report = {
    "one object": [
        SameConv2D is Conv2D,
        SameDense is keras.layers.Dense,
        SameDense is keras.layers.core.Dense,
        SameBatchNormalization is BatchNormalization,
        same_concatenate is concatenate,
        objectives.mse is losses.mse,
        issubclass(Dense, Layer),
        K.get_session() is sess,
        K.tf.placeholder is tf.placeholder,
        callable(K.tensorflow_backend._to_tensor),
    ],
    "of another Keras": [hasattr(keras, "ops"), hasattr(K, "no_such_name"), int(keras.__version__[0])],
    "padded": sequence.pad_sequences([[1, 2], [3]], 3).tolist(),
}


class Scale(Layer):
    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(int(shape[-1]),), initializer="ones", trainable=True)
        super(Scale, self).build(shape)

    def call(self, x):
        return x * self.w

    def compute_output_shape(self, shape):
        return shape


draw = np.random.RandomState(3)
images = draw.rand(24, 8, 8, 3).astype("float32")
labels = np_utils.to_categorical(draw.randint(0, 4, 24), 4)
inputs = Input(shape=(8, 8, 3))
scores = Dense(4, activation="softmax")(Scale()(Flatten()(inputs)))
model = Model(inputs=inputs, outputs=scores)
model.set_weights([draw.normal(0, 0.1, w.shape) if w.ndim > 1 else w for w in model.get_weights()])
model.compile("sgd", "categorical_crossentropy")
generator = ImageDataGenerator(featurewise_center=True, horizontal_flip=True)
generator.fit(images)
flow = generator.flow(images, labels, batch_size=8, shuffle=False, seed=5)
batches = [next(flow) for _ in range(3)]
report["pictures"] = [round(float((x * np.arange(8)[:, None]).sum()), 2) for x, _ in batches]
report["losses"] = [round(float(model.evaluate(x, y, verbose=0)), 4) for x, y in batches]
dense = Sequential([Dense(4, activation="softmax", input_dim=192)])
dense.set_weights(model.get_weights()[1:])
dense.compile(SGD(lr=0.05, momentum=0.9, decay=1e-3, nesterov=True), "categorical_crossentropy")
report["training"] = [round(float(dense.train_on_batch(x.reshape(8, 192), y)), 4) for x, y in batches + batches]
print(json.dumps(report, sort_keys=True))
