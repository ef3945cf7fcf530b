"""Prints images that Keras has augmented."""
import numpy as np
import tensorflow as tf

image = tf.keras.preprocessing.image
WAYS = (
    dict(width_shift_range=[1]),
    dict(height_shift_range=0.4, fill_mode="wrap"),
    dict(rotation_range=30, fill_mode="constant", cval=3.0),
    dict(shear_range=20),
    dict(zoom_range=[0.5, 1.0]),
    dict(brightness_range=[0.5, 1.5]),
    dict(rotation_range=20, width_shift_range=0.2, shear_range=10, zoom_range=0.2, horizontal_flip=True),
    dict(width_shift_range=[1], data_format="channels_first"),
)
images = np.random.RandomState(0).uniform(-90, 255, (2, 8, 10, 3)).astype("float32")


def show(array):
    print("%.3f %.3f %.3f" % (array.mean(), array[2, 1, 2], array[1, 2, 0]))


for options in WAYS:
    flow = image.ImageDataGenerator(**options).flow(
        images.transpose([0, 3, 1, 2]) if "data_format" in options else images, batch_size=2, seed=7
    )
    show(next(flow)[0])
np.random.seed(5)
show(image.random_shift(images[0], 0.2, 0.3, 0, 1, 2))
show(image.apply_affine_transform(images[0], ty=1))
