"""Exactly once, as a table: what makes the batches, what feeds them, and how a run ends. A model counts its records.

As a program, `python once.py FOLDER SOURCE FEED` trains to the end of the data; tests send it signals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from once_records import BAD, BadRecordError, Numbers, as_is, good, number_in

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.feed import readers
from staging_tf1.spec import ArraySpec

# With two towers, one has a batch more than the other.
COUNT = 23
BOTH = ["/cpu:0", "/cpu:0"]


class Reading:
    """An iterator, which unlike a generator continues after it raises."""

    def __init__(self, numbers: Any, check: Callable[[Any], Any]) -> None:
        self._numbers, self._check = iter(numbers), check

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Any:
        return self._check(np.array([next(self._numbers)]))


class Stream(sources.StreamSource):
    """A stream of the user's. Its state is the next number."""

    can_resume = keeps_state = True
    spec = ArraySpec((1,), np.dtype(np.int64))

    def __init__(self, count: int, check: Callable[[Any], Any]) -> None:
        self._count, self._check = count, check

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        return Reading(range(start, self._count), self._check)

    def state(self, position: int) -> bytes:
        return b"%d" % position

    def restore(self, position: int, state: bytes) -> None:
        assert position == int(state)


def _record_file(folder: Path, count: int, write: Callable[..., Any]) -> str:
    path = folder / f"{write.__name__}.records"
    if not path.exists():
        write([b"%d" % number for number in range(count)], path)
    return str(path)


def _grain(count: int, check: Callable[[Any], Any]) -> Any:
    import grain

    return grain.MapDataset.range(count).seed(3).shuffle().map(check).batch(1)


def _grain_stream(count: int, check: Callable[[Any], Any]) -> Any:
    import grain

    # Its threads would outlive the session.
    return _grain(count, check).to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def _asserted(values: Any, check: Callable[[Any], Any]) -> Any:
    """The same check by an op of the graph."""
    if check is as_is:
        return values
    bad = tf.reduce_any(tf.equal(values, tf.constant(sorted(BAD), tf.int64)))
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.logical_not(bad), data=["a bad record"])]):
        return tf.identity(values)


def _unless_as_is(check: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """Return no check for records that are as they are: only these are put in blocks."""
    return None if check is as_is else check


def _queue(count: int) -> Any:
    numbers = tf.range(count, dtype=tf.int64)
    return tf.train.input_producer(numbers, element_shape=[], num_epochs=1, shuffle=False).dequeue()[tf.newaxis]


ORDER: dict[str, Any] = dict(batch_size=1, shuffle=True, seed=3, epochs=1)
# Each takes a folder for its files, the number of records, and a check of each record.
SOURCES: dict[str, Callable[[Path, int, Callable[[Any], Any]], Any]] = {
    "ArraySource": lambda folder, count, check: sources.ArraySource(
        np.arange(count), transform=_unless_as_is(check), **ORDER
    ),
    "MapSource": lambda folder, count, check: sources.MapSource(Numbers(count, check), **ORDER),
    "TFRecordSource": lambda folder, count, check: sources.TFRecordSource(
        _record_file(folder, count, sources.write_tfrecords), parse_fn=number_in, transform=check, **ORDER
    ),
    "ArrayRecordSource": lambda folder, count, check: sources.ArrayRecordSource(
        _record_file(folder, count, sources.write_array_records), parse_fn=number_in, transform=check, **ORDER
    ),
    "cached": lambda folder, count, check: sources.cached(
        np.arange(count), folder / "cache", transform=_unless_as_is(check), **ORDER
    ),
    "GrainSource": lambda folder, count, check: sources.GrainSource(_grain(count, check)),
    "GrainSource, a stream": lambda folder, count, check: sources.GrainSource(_grain_stream(count, check)),
    "StreamSource": lambda folder, count, check: Stream(count, check),
    "GeneratorSource": lambda folder, count, check: sources.GeneratorSource(
        lambda: Reading(range(count), check), spec=Stream.spec, resume="skip"
    ),
    "tf.data": lambda folder, count, check: tf.data.Dataset.range(count).map(lambda n: _asserted(n, check)).batch(1),
    "tensors of a queue": lambda folder, count, check: _asserted(_queue(count), check),
    "tensors of a CustomRunner": lambda folder, count, check: _asserted(
        staging.CustomRunner(sources.ArraySource(np.arange(count), **ORDER), queue="fifo").get_inputs(), check
    ),
}


def _staged(**options: Any) -> Callable[..., list[Any]]:
    return lambda values, **more: tf.nest.flatten(staging.staged(values, name="train", **options, **more))


def _checked(batch: Any) -> Any:
    """The same batch, by ops that could fail."""
    return tf.map_fn(lambda number: tf.ensure_shape(number, []), batch)


def _queued(**options: Any) -> Callable[..., list[Any]]:
    return lambda values, **more: [staging.CustomRunner(values, **options, **more).get_inputs()]


# Each returns the batches of the towers.
FEEDS: dict[str, Callable[..., list[Any]]] = {
    "one thread": _staged(),
    "threads": _staged(num_threads=3, capacity=5),
    "processes": _staged(num_processes=2),
    "map_fn": _staged(map_fn=_checked, num_threads=3, capacity=5),
    "lockstep": _staged(lockstep=True),
    "towers": _staged(devices=BOTH, num_threads=2, capacity=3),
    "towers in lockstep": _staged(devices=BOTH, lockstep=True),
    "queue of batches": _queued(queue="fifo", num_threads=2),
    "queue of records": _queued(queue="shuffle", batch_size=3, seed=1),
}


class Model(NamedTuple):
    """A graph: the training op of each tower, the op that counts steps, and one that fails when all have trained."""

    train: list[Any]
    step: Any
    fail: Any


def build(folder: Path, source: str, feed: str, count: int = COUNT, bad: bool = False) -> Model:
    """Build a model that counts how often it was trained on each record, in the variable `seen`."""
    ignored = (BadRecordError, tf.errors.InvalidArgumentError) if bad else ()
    values = SOURCES[source](folder, count, good if bad else as_is)
    parts = FEEDS[feed](values, ignored_exception_types=ignored)
    seen = tf.get_variable("seen", [count], tf.int64, tf.zeros_initializer(), use_resource=True)
    train = [tf.raw_ops.ResourceScatterAdd(resource=seen.handle, indices=x, updates=tf.ones_like(x)) for x in parts]
    with tf.control_dependencies(train):
        fail = tf.raw_ops.Assert(condition=False, data=["the step fails"])
    return Model(train, tf.assign_add(tf.train.get_or_create_global_step(), 1), fail)


def session(folder: Path, *hooks: Any) -> Any:
    """A session that restores the checkpoint in the folder. It saves now and then, and at its end."""
    quiet = dict(save_summaries_steps=0, log_step_count_steps=0, save_graph_def=False)
    return staging.StagingSession(checkpoint_dir=str(folder), save_checkpoint_steps=4, hooks=hooks, **quiet)


def steps(sess: Any, model: Model) -> Iterator[None]:
    """Run common steps while all towers have a batch, then each tower alone. Yield after each."""
    towers = range(len(model.train))
    for taking in [towers, *([tower] for tower in towers)]:
        with suppress(tf.errors.OutOfRangeError):
            while not sess.should_stop():
                sess.run([[model.train[tower] for tower in taking], model.step])
                yield


def seen(folder: Path) -> Any:
    """Return how often the model in the latest checkpoint was trained on each record."""
    return tf.train.load_variable(str(folder), "seen")


def consumed(folder: Path) -> int:
    """Return how many batches all towers have consumed, by the position in the latest checkpoint."""
    return int(tf.train.load_variable(str(folder), "train/position").sum())


def main(folder: Path, source: str, feed: str, count: int) -> None:
    tf.disable_v2_behavior()
    # Blocks from the second batch on: the runs are short.
    readers._FIRST_BATCHES = 1
    model = build(folder, source, feed, count)
    with session(folder / "model") as sess:
        for _ in steps(sess, model):
            print("step", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
