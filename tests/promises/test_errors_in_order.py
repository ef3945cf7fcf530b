"""The error of batch k is raised after exactly k good steps, however many threads or processes make the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker
from once import Stream
from overtaken import BATCHES, Overtaken

import staging_tf1 as staging
from staging_tf1.errors import SourceError, SpecError


@contextmanager
def in_staging_session(batch: Any) -> Iterator[Callable[[], Any]]:
    with staging.StagingSession() as sess:
        yield lambda: sess.run(batch)


@contextmanager
def by_callable(batch: Any) -> Iterator[Callable[[], Any]]:
    with staging.StagingSession() as sess:
        yield sess.make_callable(batch)


@contextmanager
def in_monitored_session(batch: Any) -> Iterator[Callable[[], Any]]:
    with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
        yield lambda: sess.run(batch)


@contextmanager
def in_plain_session(batch: Any) -> Iterator[Callable[[], Any]]:
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        sess.run(tf.global_variables_initializer())
        threads = staging.start(sess, coord)
        try:
            yield lambda: sess.run(batch)
        finally:
            coord.request_stop()
            coord.join(threads)


SESSIONS = {each.__name__: each for each in (in_staging_session, by_callable, in_monitored_session, in_plain_session)}
MAKERS: dict[str, dict[str, int]] = {
    "one thread": dict(num_threads=1),
    "two threads": dict(num_threads=2),
    "four threads": dict(num_threads=4),
    "processes": dict(num_processes=2),
}


def stepped(session: str, batch: Any) -> tuple[list[int], BaseException | None]:
    """Return what the steps get until an error, and the error; None at the end of the data."""
    got: list[int] = []
    try:
        with SESSIONS[session](batch) as step:
            while True:
                got += np.asarray(step()).tolist()
    except tf.errors.OutOfRangeError:
        return got, None
    except Exception as error:
        return got, error
    return got, None


def numbers(*but: int, end: int = BATCHES) -> list[int]:
    return [number for number in range(end) if number not in but]


def fails_at_five(batch: Any) -> Any:
    with tf.control_dependencies([tf.debugging.assert_none_equal(batch, np.int64(5), message="five")]):
        return batch + 0


class Fault(NamedTuple):
    """Which batch fails, how, and what the step raises."""

    bad: int
    raised: Any
    kind: type[Exception]
    text: str
    map_fn: Any = None


FAULTS = {
    "an early error": Fault(1, KeyError, KeyError, "record 1 is bad"),
    "a late error": Fault(7, KeyError, KeyError, "record 7 is bad"),
    "another dtype": Fault(5, None, SpecError, "batch 5: the batch got float32 [1], expected int64"),
    "a signal": Fault(5, StopIteration, SourceError, "while it made batch 5"),
    "an op of map_fn": Fault(5, None, tf.errors.InvalidArgumentError, "failed for batch 5", fails_at_five),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("makers", MAKERS)
@pytest.mark.thinned
def test_an_error_comes_in_its_turn(tmp_path: Path, makers: str, session: str, fault: str) -> None:
    bad, raised, kind, text, map_fn = FAULTS[fault]
    with tf.Graph().as_default():
        source = Overtaken(() if map_fn else (bad,), tmp_path, raised, waits="threads" in makers)
        got, error = stepped(session, staging.staged(source, map_fn=map_fn, **MAKERS[makers]))
    assert got == numbers(end=bad)
    assert type(error) is kind and text in str(error)


@pytest.mark.parametrize("makers", MAKERS)
@pytest.mark.parametrize("most", [0, 1, 2])
@pytest.mark.thinned
def test_skipped_batches(tmp_path: Path, makers: str, most: int) -> None:
    bad = (3, 8)
    with tf.Graph().as_default():
        source = Overtaken(bad, tmp_path, KeyError, waits="threads" in makers)
        batch = staging.staged(source, ignored_exception_types=KeyError, max_ignored=most, **MAKERS[makers])
        got, error = stepped("in_staging_session", batch)
    if most == len(bad):
        assert error is None and got == numbers(*bad)
    else:
        assert isinstance(error, KeyError) and f"record {bad[most]} is bad" in str(error)
        assert got == numbers(*bad, end=bad[most])


@pytest.mark.parametrize("options", [dict(num_threads=4), dict(lockstep=True)], ids=str)
@pytest.mark.parametrize("ignored", [(), (KeyError,)])
def test_an_iterator_that_goes_on_after_its_error(graph: Any, ignored: Any, options: dict[str, Any]) -> None:
    """What it makes after the error comes only if the error is skipped, each batch under its own number."""

    def check(batch: Any) -> Any:
        if batch[0] == 2:
            raise KeyError("two")
        return batch

    batch = staging.staged(Stream(BATCHES, check), ignored_exception_types=ignored, **options)
    got: list[int] = []
    errors: list[type[Exception]] = []
    with suppress(KeyError), staging.StagingSession(stall_secs=5, stall_raises=True) as sess:
        while len(errors) < 2:
            try:
                got += sess.run(batch).tolist()
            except (KeyError, tf.errors.OutOfRangeError) as error:
                errors.append(type(error))
    assert got == numbers(2, end=BATCHES if ignored else 2)
    assert errors[0] is (tf.errors.OutOfRangeError if ignored else KeyError)


@pytest.mark.parametrize("bad", [6, 7])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("makers", ["one thread", "two threads"])
def test_towers(tmp_path: Path, makers: str, shared: bool, bad: int) -> None:
    with tf.Graph().as_default():
        # The other tower makes its part of the round before only when the batch has failed.
        source = Overtaken((bad,), tmp_path, KeyError, waits=not shared)
        # Towers take from a generator in rotation.
        given = (source.batch(number) for number in range(BATCHES)) if shared else source
        batches = staging.staged(given, devices=["/cpu:0"] * 2, **MAKERS[makers])
        got, error = stepped("in_staging_session", tf.concat(batches, 0))
    assert got == numbers(end=6) and isinstance(error, KeyError)


@pytest.mark.parametrize("by", ["run", "callable"])
def test_in_a_cluster(tmp_path: Path, by: str) -> None:
    got: list[int] = []
    with only_worker() as cluster, tf.Graph().as_default(), cluster.device_scope():
        batch = staging.staged(Overtaken((3,), tmp_path, KeyError, waits=False), cluster=cluster)
        tf.train.get_or_create_global_step()
        errors: list[Exception] = []
        # The close raises it, too.
        with suppress(KeyError), staging.StagingSession(cluster=cluster) as sess:
            step = sess.make_callable(batch) if by == "callable" else lambda: sess.run(batch)
            while not errors:
                try:
                    got += step().tolist()
                except Exception as error:
                    errors.append(error)
    assert got == numbers(end=3) and "record 3 is bad" in str(errors[0])
