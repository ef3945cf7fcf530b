"""Which ops `staged(map_fn=)` refuses: those whose outputs may differ from run to run, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from slow import some_of
from tensorflow.python.framework import function

import staging_tf1 as staging
from staging_tf1.errors import BuildError
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

Dataset = tf.data.Dataset
single = tf.data.experimental.get_single_element
COUNT, BATCH = 12, 4
SOURCE = ArraySource(np.arange(COUNT), batch_size=BATCH, seed=5, epochs=1)


# Each makes a tensor (int64, of shape [] or [BATCH]) that is not the same in each run.


def random() -> Any:
    return tf.random.uniform([], 0, 9, tf.int64, seed=3)


def defun() -> Any:
    @function.Defun()
    def made() -> Any:
        return random()

    return tf.ensure_shape(made(), [])


def reader() -> Callable[[], Any]:
    words, made = tf.FIFOQueue(9, tf.string, []), tf.IdentityReader()
    return lambda: tf.strings.to_number(made.read(words).value, tf.int64)


def accumulator() -> Callable[[], Any]:
    made = tf.ConditionalAccumulator(tf.float32, [])
    return lambda: tf.cast(made.take_grad(1), tf.int64)


def mutable() -> Callable[[], Any]:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    return lambda: table.lookup(tf.constant(1, tf.int64))


def area() -> Callable[[], Any]:
    made = staging.StagingArea([tf.int64], [[]], capacity=2)
    return lambda: made.get()[0]


def peeked() -> Callable[[], Any]:
    made = staging.StagingArea([tf.int64], [[]], capacity=2)
    return lambda: made.peek(0)[0]


def in_any_order() -> Any:
    return Dataset.range(BATCH).map(lambda x: x + 1, num_parallel_calls=2, deterministic=False)


def with_options() -> Any:
    options = tf.data.Options()
    options.deterministic = False
    return Dataset.range(BATCH).map(lambda x: x + 1, num_parallel_calls=2).with_options(options)


def another_pipeline() -> Callable[[], Any]:
    made = staging.staged(SOURCE, name="other")
    return lambda: made


# For each, a function that makes what it reads, and returns a function that reads it.
READS: dict[str, tuple[Callable[[], Callable[[], Any]], str]] = {
    "random": (
        lambda: random,
        "uses RandomUniformInt .* Let it take an argument `seed`, and use ops such as tf.random.stateless_uniform",
    ),
    "dropout": (lambda: lambda: tf.cast(tf.nn.dropout(tf.ones([]), rate=0.5), tf.int64), "uses RandomUniform "),
    "random.shuffle": (lambda: lambda: tf.random.shuffle(tf.range(BATCH, dtype=tf.int64)), "uses RandomShuffle "),
    "a loop": (
        lambda: lambda: tf.map_fn(lambda x: x + random(), tf.range(BATCH, dtype=tf.int64)),
        "uses RandomUniformInt",
    ),
    "a branch": (
        lambda: lambda: tf.cond(tf.constant(True), random, lambda: tf.constant(1, tf.int64)),
        "uses RandomUniformInt",
    ),
    "a choice": (lambda: lambda: tf.switch_case(tf.constant(0), [random, random]), "uses RandomUniformInt"),
    "a tf.function": (lambda: lambda: tf.function(random)(), "uses RandomUniformInt"),
    "a Defun": (lambda: defun, "uses RandomUniformInt"),
    "a dataset's function": (
        lambda: lambda: single(Dataset.range(1).flat_map(lambda x: Dataset.from_tensors(x + random()))),
        "uses RandomUniformInt",
    ),
    "time": (
        lambda: lambda: tf.cast(tf.timestamp(), tf.int64),
        "uses Timestamp .* which may give something else in each run. .* transform of the source. "
        r"\(op type Timestamp, made at test_map_fn_ops.py:\d+\)$",
    ),
    "of the system": (
        lambda: lambda: tf.raw_ops.NonDeterministicInts(shape=[BATCH], dtype=tf.int64),
        "uses NonDeterministicInts",
    ),
    "random dataset": (lambda: lambda: single(Dataset.random(seed=3).take(1)), "uses RandomDataset"),
    "shuffled dataset": (
        lambda: lambda: single(Dataset.range(BATCH).shuffle(9).batch(BATCH)),
        "uses ShuffleDataset.* without a seed.* Pass seed= to shuffle",
    ),
    "shuffled in a dataset's function": (
        lambda: lambda: single(Dataset.range(1).flat_map(lambda x: Dataset.range(4).shuffle(9).batch(4))),
        "uses ShuffleDataset.* without a seed",
    ),
    "dataset cached in a file": (
        lambda: lambda: single(Dataset.range(BATCH).cache("not_written").batch(BATCH)),
        "uses CacheDataset.* which may give something else in each run",
    ),
    "dataset in any order": (
        lambda: lambda: single(in_any_order().batch(BATCH)),
        "uses ParallelMapDatasetV2 .* whose order depends on timing. Leave out deterministic=False",
    ),
    "dataset with options": (lambda: lambda: single(with_options().batch(BATCH)), "uses OptionsDataset .* whose order"),
    "a mutable table": (mutable, "uses (LookupTableFindV2|MutableHashTableV2)"),
    "another pipeline": (another_pipeline, "reads the input 'other/"),
    "a queue": (lambda: tf.FIFOQueue(9, tf.int64, []).dequeue, "reads the input '.*fifo_queue"),
    "an accumulator": (accumulator, "reads the input '.*Accumulator"),
    "a reader": (reader, "reads the input '.*Reader"),
    "an area": (area, "reads the input "),
    "an area's peek": (peeked, "reads the input "),
    "a one-shot iterator": (
        lambda: tf.data.make_one_shot_iterator(Dataset.range(99)).get_next,
        "reads the input '.*Iterator.* Join sources with staging.sources.zip_records",
    ),
    "an iterator": (
        lambda: tf.data.make_initializable_iterator(Dataset.range(99)).get_next,
        "reads the input '.*Iterator",
    ),
    "a placeholder": (
        lambda: lambda: tf.placeholder(tf.int64, [], "rate"),
        "reads the placeholder 'rate'. Nothing feeds it while batches are made",
    ),
    "a variable": (
        lambda: tf.get_variable("mean", [], tf.int64, use_resource=True).read_value,
        "reads the variable 'mean'. A batch is made steps ahead",
    ),
    "a generator": (
        lambda: lambda: tf2.random.Generator.from_seed(3).uniform([], 0, 9, tf.int64),
        "(makes|reads) the variable",
    ),
}
# Only outside: what a Python function gives for the batch is the user's promise.
OUTSIDE: dict[str, tuple[Callable[[], Callable[[], Any]], str]] = {
    "numpy_function": (
        lambda: lambda: tf.numpy_function(lambda: np.int64(1), [], tf.int64),
        "reads 'PyFunc', the result of a Python function. .* Call it in map_fn",
    ),
    "py_function": (
        lambda: lambda: tf.py_function(lambda: 1, [], tf.int64),
        "reads 'EagerPyFunc', the result of a Python",
    ),
    # A function cannot read it.
    "an old variable": (
        lambda: tf.get_variable("mean", [], tf.int64, use_resource=False).read_value,
        "reads the variable 'mean'. A batch is made steps ahead",
    ),
    "a dataset of a generator": (
        lambda: lambda: single(Dataset.from_generator(lambda: iter([1]), tf.int64, [])),
        "reads .* the result of a Python function",
    ),
}


def outside(make: Callable[[], Any]) -> Callable[[Any], Any]:
    made = make()
    return lambda batch: batch + made


def inside(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda batch: batch + make()


def deep_inside(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda batch: tf.cond(batch[0] > 0, lambda: tf.function(lambda: batch + make())(), lambda: batch)


PLACES = {each.__name__: each for each in (outside, inside, deep_inside)}


@pytest.mark.parametrize(
    ("place", "what"),
    some_of([(place, what) for place in PLACES for what in READS]) + [("outside", what) for what in OUTSIDE],
)
def test_what_differs_from_run_to_run_is_refused(graph: Any, place: str, what: str) -> None:
    prepare, text = (READS | OUTSIDE)[what]
    map_fn = PLACES[place](prepare())
    before = graph.get_operations()
    pattern = rf"staged\(\): map_fn <lambda> \(test_map_fn_ops.py:\d+\) {text}"
    with pytest.raises(BuildError, match=pattern):
        staging.staged(SOURCE, map_fn=map_fn)
    assert graph.get_operations() == before


# What is legitimate, and so gives the same with any number of threads.


def constant_table() -> Any:
    keys, values = tf.constant([0, 3, 7], tf.int64), tf.constant([5, 6, 7], tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)


def vocabulary() -> Callable[[Any], Any]:
    words = tf.constant(["0", "4", "9"])
    table = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(3, dtype=tf.int64)), 3)
    return lambda batch: table.lookup(tf.as_string(batch)) + table.size()


def printed(batch: Any) -> Any:
    with tf.control_dependencies([tf.print("batch", batch, output_stream="file:///dev/null")]):
        positive = tf.debugging.Assert(tf.reduce_all(batch >= 0), [batch])
    with tf.control_dependencies([positive]):
        return tf.debugging.check_numerics(tf.cast(batch, tf.float32), "batch")


def looped(batch: Any) -> Any:
    made = tf.TensorArray(tf.int64, BATCH)
    made = tf.while_loop(lambda i, _: i < BATCH, lambda i, made: (i + 1, made.write(i, 2 * batch[i])), [0, made])[1]
    return tf.map_fn(lambda x: tf.cond(x > 4, lambda: x - 4, lambda: x), made.stack())


def of_dataset(batch: Any, seed: Any) -> Any:
    made = Dataset.from_tensor_slices(batch).shuffle(9, seed=7).shuffle(3, seed[1]).cache().repeat(2)
    made = made.interleave(lambda x: Dataset.from_tensors(x).map(lambda x: x + 1), 2, num_parallel_calls=2)
    return single(made.batch(2 * BATCH)), made.reduce(np.int64(0), lambda total, x: total + x)


def from_file(path: str) -> Callable[[Any], Any]:
    return lambda batch: (batch, tf.io.read_file(path), single(tf.data.TextLineDataset(path).take(1)))


def of_generator(batch: Any) -> Any:
    return single(Dataset.from_generator(lambda rows: iter(rows[:1] * 2), tf.int64, [], args=(batch,)))


def constants() -> Callable[[Any], Any]:
    """Use what was made outside, by a loop of control flow v1, a function and a stateless op."""
    numbers = tf.map_fn(lambda x: x + 1, tf.range(BATCH, dtype=tf.int64))
    more = tf.function(lambda: tf.random.stateless_uniform([BATCH], [1, 2], 0, 9, tf.int64))()
    return lambda batch: batch + numbers + more


ALLOWED: dict[str, Callable[[str], Callable[..., Any]]] = {
    "a constant table": lambda path: constant_table().lookup,
    "a constant table made inside": lambda path: lambda batch: constant_table().lookup(batch),
    "a vocabulary": lambda path: vocabulary(),
    "stateless random numbers": lambda path: (
        lambda batch, seed: batch + tf.random.stateless_uniform([BATCH], seed, 0, 99, tf.int64)
    ),
    "checks and prints": lambda path: printed,
    "loops": lambda path: looped,
    "vectorized": lambda path: lambda batch: tf.vectorized_map(lambda x: x * x, batch),
    "a dataset of the batch": lambda path: of_dataset,
    "files": from_file,
    "numpy_function": lambda path: lambda batch: tf.numpy_function(lambda x: x * 2, [batch], tf.int64),
    "py_function": lambda path: lambda batch: tf.py_function(lambda x: x * 2, [batch], tf.int64),
    "a generator": lambda path: of_generator,
    "constants": lambda path: constants(),
    "decoded images": lambda path: (
        lambda batch: tf.io.decode_png(tf.io.encode_png(tf.cast(batch[:, None, None], tf.uint8)), channels=3)
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_the_same_in_each_run_is_allowed(tmp_path: Path, what: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text("one\ntwo\n")
    runs = []
    for options in (dict(), dict(num_threads=3, capacity=4), dict(num_threads=2)):
        with tf.Graph().as_default():
            x = staging.staged(SOURCE, map_fn=ALLOWED[what](str(path)), **options)
            with staging.StagingSession() as sess:
                runs.append([sess.run(x) for _ in range(COUNT // BATCH)])
    for run in runs[1:]:
        tf.nest.map_structure(np.testing.assert_array_equal, run, runs[0])
