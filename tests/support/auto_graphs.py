"""Five kinds of graph whose input computes within the step, for the tests of `auto_stage()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


class Model(NamedTuple):
    """What a loop of the program runs."""

    train: Any
    # Losses, labels and summaries.
    fetches: list[Any]
    # To run before the first step.
    inits: list[Any]


def _trained(x: Any, labels: Any, optimizer: Any = None) -> tuple[Any, Any]:
    w = tf.get_variable("w", [x.shape[-1], 1], initializer=tf.ones_initializer(), use_resource=True)
    hidden = tf.nn.dropout(tf.matmul(x, w), rate=0.3, seed=5)
    loss = tf.reduce_mean((hidden[:, 0] - tf.cast(labels, tf.float32)) ** 2)
    return loss, (optimizer or tf.train.GradientDescentOptimizer(1e-4)).minimize(loss)


def images(batches: int = 1000) -> Model:
    """JPEGs that are decoded and augmented in a loop after the iterator."""
    data = tf.data.Dataset.range(3 * batches).map(
        lambda i: (tf.io.encode_jpeg(tf.cast(tf.fill([20, 20, 3], i % 255), tf.uint8)), i % 7)
    )
    iterator = tf.data.make_initializable_iterator(data.batch(3))
    encoded, labels = iterator.get_next()

    def augmented(each: Any) -> Any:
        image = tf.image.random_flip_left_right(tf.image.decode_jpeg(each, channels=3), seed=3)
        image = tf.image.random_brightness(tf.image.convert_image_dtype(image, tf.float32), 0.3, seed=4)
        return tf.image.resize(image, [8, 8])

    pictures = tf.map_fn(augmented, encoded, dtype=tf.float32, parallel_iterations=1)
    x = tf.reshape(pictures, [-1, 192])
    loss, train = _trained(x, labels)
    summary = tf.summary.merge([tf.summary.scalar("mean", tf.reduce_mean(x)), tf.summary.image("in", pictures)])
    return Model(train, [loss, labels, summary], [iterator.initializer])


def text(batches: int = 1000) -> Model:
    """CSV, strings and tables before embeddings."""
    data = tf.data.Dataset.range(4 * batches).map(
        lambda i: tf.strings.join(["w", tf.as_string(i % 5), ",", tf.as_string(i % 3)])
    )
    iterator = tf.data.make_initializable_iterator(data.batch(4))
    word, label = tf.io.decode_csv(iterator.get_next(), [[""], [0]])
    keys, values = tf.constant(["w0", "w1", "w2", "w3"]), tf.constant([0, 1, 2, 3], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 4)
    ids = table.lookup(tf.strings.lower(tf.strings.strip(word)))
    vectors = tf.get_variable("vectors", [5, 4], initializer=tf.ones_initializer(), use_resource=True)
    loss, train = _trained(tf.nn.embedding_lookup(vectors, ids), label)
    return Model(
        train, [loss, label, tf.summary.histogram("ids", ids)], [iterator.initializer, tf.tables_initializer()]
    )


def queues(batches: int = 1000, more_ops: int = 0) -> Model:
    """`tf.train.batch` with queue runners, and preprocessing after the dequeue, of that many more ops."""
    number = tf.train.range_input_producer(100_000, num_epochs=None, shuffle=True, seed=2, capacity=8).dequeue()
    numbers = tf.train.batch([number], 4, num_threads=1, capacity=16)
    noise = tf.random_uniform([4, 3], seed=6)
    x = tf.cast(numbers, tf.float32)[:, None] / 1e5 + noise
    x = (x - tf.reduce_mean(x, 0)) / 2.0
    for _ in range(more_ops):
        x = tf.tanh(x)
    loss, train = _trained(x, numbers % 3)
    return Model(train, [loss, numbers, tf.summary.scalar("noise", tf.reduce_mean(x))], [])


def towers(batches: int = 1000) -> Model:
    """Two towers that share the variables, each with half of a batch."""
    data = tf.data.Dataset.range(6 * batches).batch(6)
    iterator = tf.data.make_initializable_iterator(data)
    numbers = iterator.get_next()
    x = tf.image.random_contrast(
        tf.cast(tf.reshape(numbers, [-1, 1, 1, 1]), tf.float32) + tf.ones([6, 2, 2, 1]), 0.5, 1.5
    )
    x = tf.reshape(x / 1e4, [-1, 4])
    optimizer, gradients, losses = tf.train.MomentumOptimizer(1e-3, 0.9), [], []
    for tower, part in enumerate(zip(tf.split(x, 2), tf.split(numbers, 2), strict=True)):
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE), tf.name_scope(f"tower_{tower}"):
            w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer(), use_resource=True)
            losses.append(tf.reduce_mean((tf.matmul(part[0], w)[:, 0] - tf.cast(part[1] % 5, tf.float32)) ** 2))
            gradients.append(optimizer.compute_gradients(losses[-1], [w]))
    mean = [((a[0] + b[0]) / 2, a[1]) for a, b in zip(*gradients, strict=True)]
    train = optimizer.apply_gradients(mean)
    return Model(train, [losses, numbers, tf.summary.scalar("x", tf.reduce_max(x))], [iterator.initializer])


def python(batches: int = 1000) -> Model:
    """A py_func that makes batches, and second gradients through the boundary."""
    made = iter(range(batches))

    def batch() -> Any:
        return np.full([4, 3], next(made), np.float32) / 100

    raw = tf.py_func(batch, [], tf.float32)
    raw.set_shape([4, 3])
    x = tf.log1p(raw) + tf.random_normal([4, 3], seed=9)
    w = tf.get_variable("w", [3, 1], initializer=tf.ones_initializer(), use_resource=True)
    score = tf.reduce_sum(tf.tanh(tf.matmul(x, w)))
    slope = tf.gradients(score, x)[0]
    loss = tf.reduce_sum(slope**2) + score**2
    train = tf.train.GradientDescentOptimizer(1e-3).minimize(loss)
    return Model(train, [loss, raw, tf.summary.scalar("slope", tf.reduce_mean(slope))], [])


KINDS: dict[str, Callable[..., Model]] = {
    "images": images,
    "text": text,
    "queues": queues,
    "towers": towers,
    "python": python,
}


def new_graph() -> Any:
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(1)
    return graph


def run(make: Any, *, auto: bool, steps: int = 100, batches: int = 1000, **options: Any) -> list[Any]:
    """What each step of a plain loop gives, until the end of the data."""
    with new_graph().as_default():
        model: Model = make(batches)
        if auto:
            assert staging.auto_stage(**options).pipelines
        seen = []
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess, coord)
            sess.run(model.inits)
            try:
                for _ in range(steps):
                    seen.append(sess.run([*model.fetches, model.train])[:-1])
            except tf.errors.OutOfRangeError:
                pass
            finally:
                coord.request_stop()
                coord.join(threads)
        return seen


def equal(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b)
        for step, same in zip(one, other, strict=True)
        for a, b in zip(tf.nest.flatten(step), tf.nest.flatten(same), strict=True)
    )


class Counted:
    """A step that shows which batch it took."""

    def __init__(self, batches: int = 5, *, iterator: str = "initializable", size: int = 2) -> None:
        data = tf.data.Dataset.range(batches * size).batch(size)
        make = {"initializable": tf.data.make_initializable_iterator, "one_shot": tf.data.make_one_shot_iterator}
        self.iterator = make[iterator](data)
        self.raw = self.iterator.get_next()
        self.double = tf.multiply(self.raw, 2, name="double")
        self.x = tf.cast(self.double, tf.float32, name="x")
        self.w = tf.get_variable("w", initializer=1.0, use_resource=True)
        self.loss = tf.reduce_sum(self.w * self.x)
        self.train = tf.train.GradientDescentOptimizer(0.0).minimize(self.loss)

    def init(self, sess: Any) -> None:
        sess.run(tf.global_variables_initializer())
        if hasattr(self.iterator, "_initializer") and self.iterator._initializer is not None:
            sess.run(self.iterator.initializer)


def epoch(sess: Any, fetches: Any) -> list[Any]:
    seen = []
    while True:
        try:
            seen.append(sess.run(fetches))
        except tf.errors.OutOfRangeError:
            return seen
