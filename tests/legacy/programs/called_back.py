"""Asks what the program sees of `tf` wherever TensorFlow, Keras, tf.contrib and Python call its functions.

AutoGraph converts some of the functions. It then calls `hasattr` and `getattr` itself.
"""
from __future__ import print_function

import functools
import importlib
import tempfile
import threading

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.util import tf_contextlib, tf_decorator

VERSION = tf.__version__
tf.__version__ = "of the program"
seen = []
PLACES = []


def place(run):
    PLACES.append(run)
    return run


def ask(*_, **__):
    seen.append([getattr(tf, "__version__"), hasattr(tf, "contrib"), getattr(tf, "to_float", None) is not None])
    return 1.0


def tensor(*_, **__):
    ask()
    return tf.constant(1.0)


def same(x, *_, **__):
    ask()
    return x


def one():
    return tf.data.Dataset.from_tensors(tf.zeros([2]))


def value_of(fetched):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetched)


def first(dataset):
    return value_of(tf.data.make_one_shot_iterator(dataset).get_next())


@place
def dataset_transforms():
    first(one().map(same).flat_map(lambda x: [ask(), one()][1]).filter(lambda x: [ask(), tf.constant(True)][1]))
    first(one().map(functools.partial(same, unused=1)).interleave(lambda x: [ask(), one()][1], cycle_length=1))
    first(one().apply(same).apply(tf.contrib.data.map_and_batch(same, 1)))
    key = lambda x: [ask(), tf.constant(0, tf.int64)][1]
    first(one().apply(tf.data.experimental.group_by_window(key, lambda k, some: [ask(), some.batch(1)][1], 1)))
    value_of(one().reduce(0.0, lambda total, x: [ask(), total][1]))


@place
def dataset_generator():
    def rows():
        yield ask()

    first(tf.data.Dataset.from_generator(rows, tf.float32))


@place
def branch_in_dataset():
    def scaled(x):
        if hasattr(tf, "contrib"):
            seen.append([tf.__version__, True, hasattr(tf, "to_float")])
            return x
        seen.append("the other branch")
        return -x

    first(one().map(scaled))


@place
def other_ways_to_ask():
    def asking(x):
        some = functools.partial(getattr, tf)
        seen.append([some("__version__"), "placeholder" in dir(tf), "to_float" in vars(tf)])
        seen.append([list(map(some, ["__version__"]))[0], any(hasattr(tf, each) for each in ["contrib"]), True])
        module = importlib.import_module("tensorflow")
        seen.append([module.__version__, importlib.import_module("tensorflow.contrib") is not None, True])
        import tensorflow as imported
        from tensorflow import contrib

        seen.append([imported.__version__, contrib is not None, imported.to_float is not None])
        seen.append([tf.__version__, eval("hasattr(tf, 'contrib')"), True])
        return x

    first(one().map(asking))


@place
def python_functions():
    value_of(tf.py_func(ask, [], tf.double))
    value_of(tf.numpy_function(functools.partial(ask, unused=1), [], tf.double))
    value_of(tf.py_function(tensor, [], tf.float32))


@place
def functions():
    value_of(tf.function(tensor)())
    value_of(tf.contrib.eager.defun(tensor)())
    value_of(function.Defun(tf.float32, func_name="defined")(lambda x: same(x))(tf.constant(1.0)))


@place
def loops_and_branches():
    value_of(tf.map_fn(tensor, tf.zeros([2])))
    value_of(tf.scan(tensor, tf.zeros([2]), tf.constant(1.0)))
    value_of(tf.foldl(tensor, tf.zeros([2]), tf.constant(1.0)))
    value_of(tf.cond(tf.constant(True), tensor, functools.partial(tensor, unused=1)))
    value_of(tf.case([(tf.constant(True), tensor)], tensor))
    value_of(tf.while_loop(lambda x: [ask(), x < 1][1], tensor, [tf.constant(0.0)]))
    value_of(tf.vectorized_map(tensor, tf.zeros([2])))


@place
def gradients():
    @tf.custom_gradient
    def custom(x):
        ask()
        return x, same

    @tf.RegisterGradient("AsksOfCalledBack%d" % id(seen))
    def registered(op, gradient):
        return same(gradient)

    x = tf.constant(1.0)
    with tf.get_default_graph().gradient_override_map({"Identity": "AsksOfCalledBack%d" % id(seen)}):
        tf.gradients(tf.identity(x), x)
    with tf.variable_scope("of_resources", use_resource=True):
        tf.gradients(custom(x), x)


@place
def variables():
    def zeros(shape, dtype=None, partition_info=None):
        ask()
        return tf.zeros(shape, dtype)

    def get(getter, *args, **kwargs):
        ask()
        return getter(*args, **kwargs)

    with tf.device(lambda op: [ask(), "/cpu:0"][1]):
        tf.get_variable("a", [2], initializer=zeros, regularizer=tensor, constraint=same, custom_getter=get)
    tf.get_variable("b", [2], partitioner=lambda shape, dtype: [ask(), [1]][1])
    tf.Variable(tensor)
    with tf.variable_creator_scope(lambda creator, **kwargs: get(creator, **kwargs)):
        tf.Variable(1.0)
    tf.make_template("template", tensor)()


class Layer(tf.layers.Layer):
    def build(self, shape):
        ask()
        super(Layer, self).build(shape)

    def call(self, x):
        seen.append([getattr(tf, "__version__"), hasattr(tf, "contrib"), hasattr(tf, "to_float")])
        return x


class KerasLayer(tf.keras.layers.Layer):
    def call(self, x):
        seen.append([getattr(tf, "__version__"), hasattr(tf, "contrib"), hasattr(tf, "to_float")])
        return same(x)


class Cell(tf.nn.rnn_cell.RNNCell):
    state_size = output_size = 2

    def call(self, x, state):
        return same(x), state


@place
def layers():
    x = tf.zeros([2, 2])
    Layer()(x), KerasLayer()(x), tf.keras.layers.Lambda(same)(x)
    tf.layers.dense(x, 2, activation=same, kernel_regularizer=tensor)
    tf.contrib.layers.fully_connected(x, 2, activation_fn=same, normalizer_fn=same)


@place
def cells():
    def loop(time, output, state, loop_state):
        ask()
        return time >= 2, tf.zeros([1, 2]), tf.zeros([1, 2]) if state is None else state, output, None

    tf.nn.dynamic_rnn(Cell(), tf.zeros([1, 2, 2]), dtype=tf.float32)
    tf.nn.raw_rnn(Cell(), loop)


@place
def keras_training():
    class Callback(tf.keras.callbacks.Callback):
        def on_epoch_end(self, *_):
            ask()

    def loss(labels, x):
        ask()
        return tf.reduce_mean(tf.square(labels - x))

    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,), activation=same)])
    model.compile("sgd", loss, metrics=[tensor])
    model.fit(np.zeros([2, 2]), np.zeros([2, 1]), verbose=0, callbacks=[Callback()])


class Hook(tf.train.SessionRunHook):
    begin = after_create_session = after_run = end = lambda self, *_, **__: [ask(), None][1]

    def before_run(self, run_context):
        ask()


@place
def sessions():
    x = tf.constant(1.0)
    logging = tf.train.LoggingTensorHook([x], every_n_iter=1, formatter=lambda found: [ask(), ""][1])
    scaffold = tf.train.Scaffold(init_fn=ask)
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold), hooks=[Hook(), logging]) as session:
        session.run(x)


@place
def estimator():
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.layers.dense(same(features), 1))
        step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, training_hooks=[Hook()])

    def input_fn():
        ask()
        return tf.data.Dataset.from_tensors(tf.zeros([2, 2])).map(same)

    tf.estimator.Estimator(model_fn, tempfile.mkdtemp(), params={}).train(input_fn, hooks=[Hook()], steps=1)


@place
def contrib_training():
    def model_fn(x, labels, mode):
        ask()
        loss = tf.reduce_mean(tf.layers.dense(x, 1))
        choose = lambda rate: [ask(), tf.train.GradientDescentOptimizer(rate)][1]
        step = tf.contrib.layers.optimize_loss(loss, tf.train.get_global_step(), 0.1, choose)
        return loss, loss, step

    learner = tf.contrib.learn.Estimator(model_fn, tempfile.mkdtemp())
    learner.fit(input_fn=lambda: [ask(), (tf.zeros([2, 2]), tf.zeros([2]))][1], steps=1)


@place
def strategy():
    one_device = tf.distribute.OneDeviceStrategy("/cpu:0")
    with one_device.scope():
        one_device.extended.call_for_each_replica(tensor)


@place
def decorators():
    tf.contrib.framework.add_arg_scope(ask)()
    tf.contrib.framework.deprecated("2030-01-01", "It only asks.")(lambda: ask())()
    with tf_contextlib.contextmanager(lambda: iter([ask()]))():
        pass
    tf_decorator.make_decorator(ask, lambda: ask())()
    functools.partial(functools.wraps(ask)(lambda **_: ask()), unused=1)()
    tf.contrib.framework.nest.map_structure(ask, [1])
    tf.nest.map_structure(ask, [1])


@place
def threads():
    coordinator = tf.train.Coordinator()
    workers = [threading.Thread(target=ask), tf.train.LooperThread(coordinator, None, target=lambda: run_once())]

    def run_once():
        ask()
        coordinator.request_stop()

    for worker in workers:
        worker.start()
    coordinator.join(workers)


for each in PLACES:
    tf.reset_default_graph()
    seen = []
    each()
    different = [answer for answer in seen if answer != ["of the program", True, True]]
    print(each.__name__, "sees TensorFlow 2: %s" % different[:2] if different or not seen else "sees TensorFlow 1")
tf.__version__ = VERSION
