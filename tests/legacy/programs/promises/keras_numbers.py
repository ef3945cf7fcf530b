"""Prints what Keras computes, with classes of tensorflow.python.keras imported in every way that TF1 programs do."""
import numpy as np
import tensorflow as tf

WAYS = (
    "import tensorflow.keras.layers as found",
    "from tensorflow.python.keras import layers as found",
    "import tensorflow.python.keras.layers as found",
    "from tensorflow.python.keras.layers import LSTM, GRU",
    "from tensorflow.python.keras.layers import *",
    "import tensorflow.python.keras.layers.recurrent as found",
    "from tensorflow.python.keras.layers.recurrent import LSTM, GRU",
    "from tensorflow.python.keras.layers.recurrent_v2 import LSTM, GRU",
    "from tensorflow.python.keras import initializers as found",
    "from tensorflow.python.keras.initializers import RandomNormal, glorot_normal",
    "from tensorflow.python.keras.initializers import *",
)


def last_output(kind):
    layer = kind(1, kernel_initializer="ones", recurrent_initializer="ones")
    return layer(tf.constant(np.arange(6.0).reshape(1, 3, 2) / 6, tf.float32))


def value(kind):
    return kind(seed=3)([2, 2])


for way in WAYS:
    names = {}
    exec(way, names)
    tf.reset_default_graph()
    tf.set_random_seed(1)
    kinds, compute = (("LSTM", "GRU"), last_output) if "layers" in way else (("RandomNormal", "glorot_normal"), value)
    found = [getattr(names["found"], kind) if "found" in names else names[kind] for kind in kinds]
    made = [compute(kind) for kind in found]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        print(*["%.4f" % np.ravel(array)[0] for array in session.run(made)])

OPTIMIZERS = (
    "from tensorflow.python.keras.optimizers import Adagrad; made = Adagrad(0.1)",
    "from tensorflow.python.keras import optimizers; made = optimizers.adagrad(0.1)",
    "import tensorflow.python.keras.optimizers as found; made = found.deserialize({'class_name': 'Adagrad', 'config': {}})",
    "from tensorflow.python.keras.optimizers import *; made = Adam(0.01, clipnorm=0.5, decay=0.1)",
    "from tensorflow.keras.optimizers import Adagrad; made = Adagrad(0.1)",
    "made = 'adagrad'",
)
x = np.linspace(-1, 1, 24).reshape(8, 3).astype("float32")

for way in OPTIMIZERS:
    tf.keras.backend.clear_session()
    names = {}
    exec(way, names)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones", input_shape=(3,))])
    model.compile(names["made"], "mse")
    trained = model.fit(x, x.dot([[1.0], [-2.0], [0.5]]), batch_size=4, epochs=3, shuffle=False, verbose=0)
    print("%.4f" % trained.history["loss"][-1])

for weights in (None, [[1.0, 2.0, 3.0, 4.0]] * 3):
    tf.keras.backend.clear_session()
    layers = tf.keras.layers
    dense = layers.TimeDistributed(layers.Dense(1, kernel_initializer="ones"))
    model = tf.keras.Sequential([layers.Embedding(5, 3, mask_zero=True, embeddings_initializer="ones"), dense])
    model.compile("sgd", "mse", sample_weight_mode=None if weights is None else "temporal")
    words, wanted = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 1]]), np.ones([3, 4, 1])
    trained = model.fit(words, wanted, 2, 2, 0, shuffle=False, sample_weight=weights and np.array(weights))
    print("%.4f %.4f" % tuple(trained.history["loss"]))
