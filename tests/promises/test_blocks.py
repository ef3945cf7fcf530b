"""Several batches in one run of the put: the same batches as one by one, however many; where it is not done; stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle, product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from resuming import resumed_steps
from slow import some_of

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.errors import SpecError
from staging_tf1.feed import readers
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.readers import BlockSize
from staging_tf1.feed.sink_run import Canceller, SinkRun
from staging_tf1.feed.threads import Stopped
from staging_tf1.sources import ArraySource

COUNT = 61
NUMBERS = np.arange(COUNT)
IMAGES = np.random.default_rng(0).integers(0, 256, [COUNT, 4, 3]).astype(np.uint8)
ARRAYS = {"image": IMAGES, "id": NUMBERS}
ORDER: dict[str, Any] = dict(batch_size=4, shuffle=True, seed=5, epochs=3)


def saved(folder: Path) -> Any:
    """Return an array that is mapped from a file."""
    np.save(folder / "images.npy", IMAGES)
    return np.load(folder / "images.npy", mmap_mode="r")


def arrays(**options: Any) -> Callable[[Path], Any]:
    return lambda folder: ArraySource(ARRAYS, **{**ORDER, **options})


KINDS: dict[str, Callable[[Path], Any]] = {
    "shuffled": arrays(),
    "in order": arrays(shuffle=False),
    "across epochs": arrays(across_epochs=True),
    "without a rest": arrays(drop_remainder=True),
    "a shard": arrays(shard=(1, 3)),
    "one tuple": lambda folder: ArraySource((NUMBERS, IMAGES), **ORDER),
    "one array": lambda folder: ArraySource(IMAGES, **ORDER),
    "other bytes": lambda folder: ArraySource(NUMBERS.astype(">i4"), **ORDER),
    "columns of a matrix": lambda folder: ArraySource(np.arange(COUNT * 6).reshape(COUNT, 6)[:, ::2], **ORDER),
    "no columns": lambda folder: ArraySource((NUMBERS, np.zeros([COUNT, 0, 3], np.uint8)), **ORDER),
    "one record a batch": lambda folder: ArraySource(NUMBERS, **{**ORDER, "batch_size": 1}),
    "mapped": lambda folder: ArraySource(saved(folder), **ORDER),
    "cached": lambda folder: sources.cached(ARRAYS, folder / "cache", **ORDER),
    "some": lambda folder: ArraySource(ARRAYS, **ORDER).skip(3).take(50),
    "selected": lambda folder: ArraySource(ARRAYS, **ORDER).select(NUMBERS[::-2]),
    "weighted": lambda folder: ArraySource(ARRAYS, **ORDER).weighted(NUMBERS + 1),
    "balanced": lambda folder: ArraySource(ARRAYS, **ORDER).balanced(NUMBERS % 3),
    "by length": lambda folder: ArraySource(ARRAYS, **ORDER).by_length(NUMBERS % 7 + 1),
    "a mixture": lambda folder: sources.mix(
        [ArraySource(ARRAYS, **ORDER), ArraySource({"image": 255 - IMAGES, "id": -NUMBERS}, **ORDER)], [0.7, 0.3]
    ),
    "one after the other": lambda folder: sources.concatenate([ArraySource(ARRAYS, **ORDER)] * 2),
    "zipped": lambda folder: sources.zip_records(
        {"a": ArraySource(ARRAYS, **ORDER), "b": ArraySource(IMAGES, **ORDER)}
    ),
}
STAGED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "cast": dict(cast=tf.float64),
    "room for one": dict(capacity=1),
    "threads": dict(num_threads=3),
    "AUTOTUNE": dict(num_threads=staging.AUTOTUNE),
    "map_fn": dict(map_fn=lambda batch: batch),
}


def fixed_sizes(monkeypatch: pytest.MonkeyPatch, sizes: Iterator[int]) -> None:
    """Read and put as many batches at once as `sizes` says, however long steps take."""

    def note(self: BlockSize, batches: int, source_secs: float, put_secs: float) -> None:
        self.batches = next(sizes)

    monkeypatch.setattr(BlockSize, "note", note)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of batches that were put at once."""
    put: list[int] = []
    put_block = SinkRun.put_block

    def noted(self: SinkRun, *arrays: Any, batches: int) -> int:
        count = put_block(self, *arrays, batches=batches)
        put.append(count)
        return count

    monkeypatch.setattr(SinkRun, "put_block", noted)
    fixed_sizes(monkeypatch, cycle([3, 1, 5, 2, 64]))
    return put


def delivered(source: Any, **options: Any) -> list[Any]:
    """Return all batches that the steps of a session get."""
    got = []
    with tf.Graph().as_default():
        batch = staging.staged(source, **options)
        with staging.StagingSession() as sess:
            step = sess.make_callable(batch)
            while True:
                try:
                    got.append(step())
                except tf.errors.OutOfRangeError:
                    return got


@pytest.mark.parametrize(("kind", "how"), some_of(list(product(KINDS, STAGED))))
def test_batches_are_the_same_as_one_by_one(tmp_path: Path, blocks: list[int], kind: str, how: str) -> None:
    source, options = KINDS[kind](tmp_path), STAGED[how]
    got = delivered(source, **options)
    assert blocks, "no block was put"
    assert len(got) == source.num_batches
    for number, batch in enumerate(got):
        wanted = source.batch(number)
        tf.nest.assert_same_structure(batch, wanted)
        for value, expected in zip(tf.nest.flatten(batch), tf.nest.flatten(wanted), strict=True):
            assert value.dtype == (np.float64 if how == "cast" else expected.dtype.newbyteorder("="))
            np.testing.assert_array_equal(value, expected)


class Doubled(ArraySource):
    """Of a user, who does more than copy rows."""

    def gather(self, records: Any) -> Any:
        return super().gather(records) * 2


def plain(**options: Any) -> ArraySource:
    return ArraySource(NUMBERS, **{**ORDER, **options})


NOT: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "a transform": (lambda: plain(transform=lambda batch: batch + 1), {}, "they are not just rows of arrays"),
    "a subclass": (lambda: Doubled(NUMBERS, **ORDER), {}, "they are not just rows of arrays"),
    "a mixture": (lambda: sources.mix([plain(), Doubled(NUMBERS, **ORDER)]), {}, "they are not just rows of arrays"),
    "text": (lambda: ArraySource(NUMBERS.astype(str), **ORDER), {}, "they hold strings"),
    "bytes of other formats": (
        lambda: ArraySource(NUMBERS.astype(ml_dtypes.float8_e4m3fn), **ORDER),
        {},
        "TensorFlow cannot slice them",
    ),
    "rank 8": (lambda: ArraySource(NUMBERS.reshape(-1, *[1] * 7), **ORDER), {}, "TensorFlow cannot slice them"),
    "by record": (lambda: sources.MapSource(list(NUMBERS), **ORDER), {}, "they are not just rows of arrays"),
    "padded": (lambda: plain().pad(), {}, "they are not just rows of arrays"),
    "a generator": (lambda: (np.arange(3) for _ in range(5)), {}, "they are not just rows of arrays"),
    "towers": (plain, dict(devices=["/cpu:0"] * 2), "there are several towers"),
    "lockstep": (plain, dict(lockstep=True), "the steps put them"),
    "bad batches": (plain, dict(ignored_exception_types=(ValueError,)), "bad batches are skipped"),
    "records left out": (lambda: plain().without([3, 17]), {}, "some are left out"),
    "batches left out": (plain, dict(skip=[2]), "some are left out"),
    "map_fn in threads": (plain, dict(map_fn=lambda batch: batch + 1, num_threads=2), "several threads run map_fn"),
    "map_fn in Python": (
        plain,
        dict(map_fn=lambda batch: tf.numpy_function(lambda x: x + 1, [batch], tf.int64)),
        "map_fn calls Python",
    ),
}


@pytest.mark.parametrize("why", NOT)
def test_other_inputs_are_put_one_by_one(blocks: list[int], why: str) -> None:
    make, options, reason = NOT[why]
    with tf.Graph().as_default():
        staged = staging.staged(make(), **options)
        with staging.StagingSession() as sess:
            step = sess.make_callable(staged)
            for _ in range(4):
                step()
            assert {stats.one_by_one for stats in sess.stats()} == {reason}
    assert not blocks


TABLE = np.array(["zero", "one", "two", "three"])


def looked_up(batch: Any) -> Any:
    return tf.gather(tf.constant(TABLE), batch["id"] % 4)


def noisy(batch: Any, seed: Any) -> Any:
    return batch["id"], tf.random.stateless_uniform([3], seed) + tf.cast(batch["image"][:, :, 0], tf.float32)[:, :3]


def branching(batch: Any) -> Any:
    summed = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), [0, batch["id"]])[1]
    return tf.cond(tf.reduce_sum(batch["id"]) % 2 > 0, lambda: summed, lambda: -summed)


MAPS: dict[str, Callable[..., Any]] = {
    "the same": lambda batch: batch,
    "scaled": lambda batch: {"x": tf.cast(batch["image"], tf.float32) / 255, "y": batch["id"]},
    "seeded": noisy,
    "strings": looked_up,
    "a scalar": lambda batch: (tf.reduce_sum(batch["id"]), batch["image"]),
    "some of the records": lambda batch: tf.boolean_mask(batch["id"], batch["id"] % 3 > 0),
    "sparse": lambda batch: tf.sparse.from_dense(batch["id"] % 2),
    "ragged": lambda batch: tf2.RaggedTensor.from_row_lengths(batch["image"][0, 0], [1, 0, 2]),
    "quantized": lambda batch: tf.quantize(tf.cast(batch["id"], tf.float32), 0.0, 100.0, tf.quint8).output,
    "branches and loops": branching,
    "each record": lambda batch: tf.map_fn(lambda x: x[::-1], batch["image"]),
    "a constant": lambda batch: tf.constant([1, 2]),
}


def described(batch: Any) -> list[Any]:
    leaves = [x.to_list() if hasattr(x, "to_list") else x for x in tf.nest.flatten(batch)]
    leaves = tf.nest.flatten(leaves, expand_composites=True)
    return [(np.asarray(leaf).dtype, np.asarray(leaf).tolist()) for leaf in leaves]


@pytest.mark.parametrize("name", MAPS)
def test_map_fn_in_a_block_returns_what_it_returns_alone(blocks: list[int], name: str) -> None:
    source = ArraySource(ARRAYS, **ORDER)
    alone = delivered(source, map_fn=MAPS[name], num_threads=2)
    assert not blocks
    got = delivered(source, map_fn=MAPS[name])
    assert max(blocks) > 1 and len(got) == source.num_batches
    assert list(map(described, got)) == list(map(described, alone))


@pytest.mark.slow_cases("[124567]")
@pytest.mark.parametrize("bad", range(9))
def test_map_fn_that_fails_in_a_block(blocks: list[int], bad: int) -> None:
    def checked(batch: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_none_equal(batch, np.int64(bad), message="of the record")]):
            return batch + 1

    got: list[int] = []
    with tf.Graph().as_default():
        batch = staging.staged(plain(batch_size=1, shuffle=False), map_fn=checked, name="x")
        with pytest.raises(tf.errors.InvalidArgumentError) as caught, staging.StagingSession() as sess:
            while True:
                got += sess.run(batch).tolist()
    line = checked.__code__.co_firstlineno
    assert f"'x': map_fn checked (test_blocks.py:{line}) failed for batch {bad}, at test_blocks.py" in str(caught.value)
    assert got == list(range(1, len(got) + 1)) and len(got) <= bad, (
        "each batch before it at most once, and none after it"
    )


QUEUED: dict[str, Callable[[], Any]] = {
    "rows": plain,
    "across epochs": lambda: plain(across_epochs=True),
    "without a rest": lambda: plain(drop_remainder=True),
}
RUNNERS: dict[str, dict[str, Any]] = {
    "in order": dict(queue="fifo", batch_size=3),
    "in order, threads": dict(queue="fifo", batch_size=3, num_threads=3),
    "in order, room for one": dict(queue="fifo", batch_size=3, capacity=4),
    "shuffled": dict(queue="shuffle", batch_size=3),
    "shuffled, threads": dict(queue="shuffle", batch_size=3, num_threads=3, capacity=12, min_after_dequeue=5),
}


def records_of(batches: Any) -> list[Any]:
    """Return the records of batches, as tuples."""
    leaves = [tf.nest.flatten(batch) for batch in batches]
    rows = [row for leaf in leaves for row in zip(*leaf, strict=True)]
    return [tuple(np.asarray(value).astype(np.str_).tolist() for value in row) for row in rows]


def dequeued(runner: Any) -> list[Any]:
    """Return all batches that steps get of a queue."""
    got: list[Any] = []
    batch = runner.get_inputs()
    with staging.StagingSession() as sess, suppress(tf.errors.OutOfRangeError):
        step = sess.make_callable(batch)
        while True:
            got.append(step())
    return got


@pytest.mark.parametrize(("kind", "how"), some_of(list(product(QUEUED, RUNNERS))))
def test_a_queue_gets_the_records_of_several_batches(blocks: list[int], kind: str, how: str) -> None:
    source, options = QUEUED[kind](), RUNNERS[how]
    with tf.Graph().as_default():
        got = dequeued(staging.CustomRunner(source, **options))
    assert blocks, "no block was put"
    wanted = records_of(source.batch(number) for number in range(source.num_batches))
    arrange = list if options["queue"] == "fifo" else sorted
    assert arrange(records_of(got)) == arrange(wanted)


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_components_of_different_lengths_are_refused_by_a_queue_of_records(blocks: list[int], bad: int) -> None:
    def unlike(batch: Any) -> Any:
        return {"a": batch, "b": batch[: 3 if bad * 4 in batch else None]}

    source = plain(transform=unlike, shuffle=False, epochs=1)
    rows = "component 'a' has 4, component 'b' has 3"
    message = f"'custom_runner': batch {bad}: the components have different numbers of rows: {rows}. Give each one row"
    with tf.Graph().as_default(), pytest.raises(SpecError, match=message):
        dequeued(staging.CustomRunner(source, queue="fifo", batch_size=2))


NOT_QUEUED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "whole batches": (plain, dict(queue="fifo"), "a queue holds whole batches"),
    "seeded": (plain, dict(queue="shuffle", batch_size=3, seed=1), "feeder and taker alternate"),
    "a transform": (
        lambda: plain(transform=lambda batch: batch + 1),
        dict(queue="fifo", batch_size=2),
        "they are not just rows of arrays",
    ),
    "bad batches": (
        plain,
        dict(queue="fifo", batch_size=2, ignored_exception_types=(ValueError,)),
        "bad batches are skipped",
    ),
}


@pytest.mark.parametrize("why", NOT_QUEUED)
def test_other_queues_get_one_batch_at_a_time(blocks: list[int], why: str) -> None:
    make, options, reason = NOT_QUEUED[why]
    with tf.Graph().as_default():
        batch = staging.CustomRunner(make(), **options).get_inputs()
        with staging.StagingSession() as sess:
            for _ in range(4):
                sess.run(batch)
            assert {stats.one_by_one for stats in sess.stats()} == {reason}
    assert not blocks


@pytest.mark.parametrize("first", [1, 6, 17])
def test_a_run_resumes_in_the_middle_of_a_block(tmp_path: Path, blocks: list[int], first: int) -> None:
    whole = resumed_steps(None, arrays()(tmp_path), None)
    begun = resumed_steps(tmp_path, arrays()(tmp_path), first)
    rest = resumed_steps(tmp_path, arrays()(tmp_path), None)
    assert begun + rest == whole
    assert blocks


def test_failed_steps_lose_only_their_batches(blocks: list[int]) -> None:
    got: list[Any] = []
    with tf.Graph().as_default():
        batch = staging.staged(plain(shuffle=False, batch_size=1, epochs=1), capacity=1)
        checked = tf.debugging.check_numerics(1 / tf.cast(batch[0] % 5, tf.float32), "bad")
        with tf.control_dependencies([checked]):
            kept = tf.identity(batch)
        with staging.StagingSession() as sess:
            step = sess.make_callable(kept)
            while True:
                try:
                    got += step().tolist()
                except tf.errors.OutOfRangeError:
                    break
                except tf.errors.InvalidArgumentError:
                    continue
            (stats,) = sess.stats()
    assert got == [number for number in range(COUNT) if number % 5]
    assert stats.failed_batches == tuple(range(0, COUNT, 5))
    assert (stats.batches, stats.records) == (COUNT, COUNT)
    assert stats.bytes == NUMBERS.nbytes
    assert max(blocks) > 1


@pytest.mark.usefixtures("kept_in", "patient")
@pytest.mark.parametrize("room", [1, 2, 5])
def test_a_cancel_ends_a_block_after_what_it_has_put(room: int) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        taken = staging.staged(plain(batch_size=2), capacity=room)
        sink = pipelines_of(graph)[0].sinks[0]
        sess.run(tf.global_variables_initializer())
        sess.run(sink.reset)
        run, canceller = SinkRun(sink, sess, 1), Canceller(sess, [sink])
        put: list[Any] = []
        thread = threading.Thread(target=lambda: put.append(run.put_block(np.arange(16).reshape(8, 2), batches=8)))
        thread.start()
        # It waits for the room of one more.
        while sess.run(sink.size) < room:
            pass
        canceller.cancel([run])
        thread.join(60)
        # The one that waited is added, too.
        assert put == [room + 1]
        assert [sess.run(taken).tolist() for _ in range(room + 1)] == np.arange(2 * room + 2).reshape(-1, 2).tolist()
        with pytest.raises(Stopped):
            run.put_block(np.zeros((1, 2), np.int64), batches=1)
        assert run.puts() == (1, 1)


def test_an_error_of_a_block_without_map_fn_is_raised_as_it_is() -> None:
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        staging.staged(plain(batch_size=2), capacity=5)
        sink = pipelines_of(graph)[0].sinks[0]
        sess.run([tf.global_variables_initializer(), sink.reset])
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds"):
            SinkRun(sink, sess, 1).put_block(np.zeros((1, 2), np.int64), batches=2)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batches, which are put one by one, are done."""
    monkeypatch.setattr(readers, "_FIRST_BATCHES", 0)


def test_the_first_batches_are_put_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_FIRST_BATCHES", 32)
    size = BlockSize(capacity=2, bytes_per_batch=1000)
    sizes = []
    for _ in range(33):
        size.note(1, 1e-5, 3e-4)
        sizes.append(size.batches)
    assert sizes == [1] * 31 + [2] * 2


@pytest.mark.parametrize(
    ("before", "source_secs", "put_secs", "after"),
    [
        # Fast steps: twice as many each time, up to 25 ms or what is read while the step has staged batches.
        (1, 1e-5, 3e-4, 2),
        (8, 8e-5, 24e-4, 16),
        (64, 64e-5, 128e-4, 42),
        (64, 64e-5, 576e-4, 32),
        (8, 16e-4, 16e-4, 4),
        # Slow steps: half as many each time.
        (1, 1e-5, 3e-2, 1),
        (1, 1e-5, 7.0, 1),
        (32, 32e-5, 5.0, 16),
        # The source is slower than the step.
        (1, 1e-3, 1e-5, 2),
        # A clock that stands still.
        (4, 0.0, 0.0, 2),
    ],
)
@pytest.mark.usefixtures("begun")
def test_the_size_follows_the_steps(before: int, source_secs: float, put_secs: float, after: int) -> None:
    size = BlockSize(capacity=2, bytes_per_batch=1000)
    size.batches = before
    size.note(before, source_secs, put_secs)
    assert size.batches == after


@pytest.mark.usefixtures("begun")
def test_a_slow_map_fn_stays_with_the_reading() -> None:
    size = BlockSize(capacity=2, bytes_per_batch=1000, maps=True)
    size.note(1, 1.1e-3, 1e-5)
    assert size.batches == 1
    size.note(1, 0.9e-3, 1e-5)
    assert size.batches == 2


@pytest.mark.parametrize(("bytes_per_batch", "most"), [(None, 1), (8 << 20, 1), (1 << 20, 8), (1, 64), (0, 64)])
@pytest.mark.usefixtures("begun")
def test_a_block_is_small(bytes_per_batch: int | None, most: int) -> None:
    size = BlockSize(capacity=1000, bytes_per_batch=bytes_per_batch)
    size.note(1000, 1e-6, 1e-3)
    assert size.batches == most
