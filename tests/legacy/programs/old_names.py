"""Names of variables and tensors that old checkpoints have, dtypes, and what TensorFlow 1 refuses."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
CALLS = """
layers.LSTM(2)(x)
layers.GRU(2)(x)
layers.SimpleRNN(2, use_bias=False)(x)
layers.RNN(layers.LSTMCell(2))(x)
layers.RNN([layers.LSTMCell(2), layers.GRUCell(2)])(x)
layers.Bidirectional(layers.LSTM(2))(x)
layers.ConvLSTM2D(2, [1, 2])(x[:, :, tf.newaxis, :, tf.newaxis])
layers.TimeDistributed(layers.Dense(2))(x)
tf.keras.Sequential([layers.LSTM(2, return_sequences=True, name="first"), layers.LSTM(2)])(x)
tf.keras.layers.Embedding(5, 2)(tf.constant([1]))
tf.layers.dense(x, 2, kernel_regularizer=tf.keras.regularizers.l2(0.1))
tf.layers.dense(x, 2, kernel_regularizer=tf.keras.regularizers.l1(0.1))
tf.layers.conv1d(x, 2, 2, bias_regularizer=tf.keras.regularizers.l1_l2(0.1, 0.1))
""".strip().splitlines()

for call in CALLS:
    with tf.Graph().as_default():
        result = eval(call, {"tf": tf, "layers": layers, "x": tf.constant(X)})
        losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
        print(call, [variable.name for variable in tf.global_variables()], [loss.name for loss in losses], result.shape)

with tf.Graph().as_default(), tf.Session() as session:
    for dtype in (tf.float32, tf.float16, tf.float64, tf.uint8, tf.uint16):
        picture = tf.image.per_image_standardization(tf.cast(tf.constant(X) * 10, dtype))
        print(picture.dtype.name, "%.4f" % session.run(picture).astype("float64").sum())

with tf.Graph().as_default(), tf.Session() as session:
    model = tf.keras.Sequential([layers.Lambda(lambda words: words, input_shape=[1], dtype="int32")])
    print(session.run(model(tf.constant([[2**24 + 1]]))).tolist())

column = tf.feature_column.categorical_column_with_identity("word", 5)
for word in (3, 7, -1):
    with tf.Graph().as_default(), tf.Session() as session:
        words = {"word": tf.constant([[word]])}
        try:
            print(word, session.run(tf.feature_column.input_layer(words, [tf.feature_column.indicator_column(column)])))
        except tf.errors.InvalidArgumentError as error:
            print(word, type(error).__name__, "ucket index for categorical column" in str(error))

x = tf.constant(X[0])
for name in ("sigmoid", "softmax", "sparse_softmax"):
    loss = getattr(tf.nn, name + "_cross_entropy_with_logits")
    labels = tf.constant([1, 2, 0]) if "sparse" in name else x
    for call in (lambda: loss(x, labels), lambda: loss(None, labels, x), lambda: loss(labels=labels, logits=x)):
        try:
            print(name, call().shape)
        except ValueError as error:
            print(name, str(error)[:60])
