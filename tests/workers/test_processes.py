"""`num_processes`: pipelines whose batches worker processes make."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import worker_sources
from pipelines import to_the_end
from running import run_in
from slow import with_slow
from worker_sources import OwnError, Reporting, digits, noisy

import staging_tf1 as staging
from staging_tf1 import errors
from staging_tf1.errors import SourceError, StallError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource
from staging_tf1.workers.failures import WorkerTraceback
from staging_tf1.workers.pool import WorkerPool

pytestmark = pytest.mark.usefixtures("quick_graphs")


def steps(source: Any, count: int | None = None, folder: Path | None = None, **options: Any) -> list[Any]:
    """The batches of some steps, or of all."""
    with tf.Graph().as_default():
        batch = staging.staged(source, **options)
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        got = []
        config: dict[str, Any] = dict(log_step_count_steps=0)
        if folder is not None:
            # The graph as text takes long to write.
            config |= dict(checkpoint_dir=str(folder), save_checkpoint_steps=1000, save_graph_def=False)
        with staging.StagingSession(**config) as sess:
            while count is None or len(got) < count:
                try:
                    got.append(sess.run((batch, train))[0])
                except tf.errors.OutOfRangeError:
                    break
        return got


def first(source: Any, count: int) -> list[Any]:
    """The first batches, made here."""
    return [source.batch(number) for number in range(count)]


def assert_equal(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second)
    for left, right in zip(first, second):
        for key in left:
            np.testing.assert_array_equal(left[key], right[key])


def pool_in(sess: Any, graph: Any) -> WorkerPool:
    """The workers of the only pipeline."""
    (pipeline,) = pipelines_of(graph)
    run = run_in(sess._hook.runtime.session, pipeline)
    assert run is not None
    (pool,) = run.pools_of(0)
    return pool


def test_the_sequence_is_that_of_threads() -> None:
    def source() -> Any:
        return digits(shuffle=True, seed=5, transform=noisy)

    expected = steps(source())
    assert len(expected) == 20
    for options in (dict(num_processes=1), dict(num_processes=2, capacity=5)):
        assert_equal(steps(source(), **options), expected)


def test_workers_make_the_batches_without_tensorflow() -> None:
    got = steps(Reporting(12), num_processes=1)
    assert [int(batch["x"][0]) for batch in got] == list(range(12))
    assert os.getpid() not in {int(batch["pid"]) for batch in got}
    assert not any(batch["has_tf"] for batch in got)


def test_tensorflow_gets_the_shared_memory_itself(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fed are views of a buffer, on 64-byte boundaries, for which TensorFlow takes the array itself."""
    from staging_tf1.feed.sink_run import SinkRun
    from staging_tf1.sources.aligned import is_aligned
    from staging_tf1.workers.buffers import Lent

    fed, put = [], SinkRun.put

    def watching(self: SinkRun, *arrays: Any, stamp: int = 1) -> None:
        fed.extend((type(array.base), is_aligned(array)) for array in arrays)
        put(self, *arrays, stamp=stamp)

    monkeypatch.setattr(SinkRun, "put", watching)
    batch = staging.staged(digits(transform=noisy, seed=1), num_processes=1)
    with staging.StagingSession() as sess:
        sess.run(batch)
    assert set(fed) == {(Lent, True)}


# Worker processes for one tower, where the default run has two.
@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("towers", [1, 2])
def test_every_batch_comes_exactly_once(graph: Any, towers: int) -> None:
    parts = staging.staged(worker_sources.numbers(23), devices=["/cpu:0"] * towers, num_processes=2)
    with staging.StagingSession() as sess:
        got = to_the_end(sess.run, parts)
        figures = sess.stats()
    assert sorted(itertools.chain.from_iterable(got)) == list(range(23))
    assert all(ids == sorted(ids) for ids in got)
    assert [each.processes for each in figures] == [2] * towers
    assert all(each.shared_bytes > 0 for each in figures)
    assert "2 worker processes shared at most " in str(figures[0])


# With the tighter limit, no two batches fit.
@pytest.mark.parametrize("limit", [1.2, 5])
def test_the_memory_limit_bounds_the_shared_memory(graph: Any, limit: float) -> None:
    megabyte = 1 << 20
    source = ArraySource(np.arange(12.0)[:, None] + np.zeros(megabyte // 8), batch_size=1, epochs=1)
    batch = staging.staged(source, num_processes=2, memory_limit=int(limit * megabyte), capacity=3)
    number = batch[0, 0]
    with staging.StagingSession() as sess:
        got = [int(sess.run(number)) for _ in range(12)]
        (figures,) = sess.stats()
    assert got == list(range(12))
    # The next batch in order may exceed a limit of less than two.
    assert 0 < figures.shared_bytes <= max(limit, 1.2 * 2) * megabyte


def test_a_queue_of_records(graph: Any) -> None:
    runner = staging.CustomRunner(worker_sources.numbers(40), batch_size=8, queue="shuffle", seed=3, num_processes=2)
    ids, got = runner.get_inputs()["id"], []
    with staging.StagingSession() as sess:
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                got += sess.run(ids).tolist()
    assert sorted(got) == list(range(40)) and got != list(range(40))


def test_a_run_resumes_with_other_numbers_of_processes(tmp_path: Path) -> None:
    def source() -> Any:
        return digits(200, shuffle=True, seed=5, transform=noisy)

    got = []
    for options in (dict(num_processes=2), dict(num_threads=2), dict(num_processes=1, capacity=6), dict()):
        got += steps(source(), 4, tmp_path, **options)
    assert_equal(got, first(source(), 16))


def test_an_error_is_raised_where_the_step_waits(graph: Any) -> None:
    source = Reporting(9, worker_sources.fail_at(2, lambda: OwnError(2, reason="so")))
    batch = staging.staged(source, num_processes=1, name="train")
    with pytest.raises(OwnError, match="2: so") as raised:
        with staging.StagingSession() as sess:
            for _ in range(9):
                sess.run(batch)
    assert raised.value.__notes__ == ["raised while the source made batch 2"]
    assert isinstance(raised.value.__cause__, WorkerTraceback)
    assert "in worker process 'train:" in str(raised.value.__cause__)


def test_a_stop_iteration_is_no_end_of_data(graph: Any) -> None:
    batch = staging.staged(Reporting(9, worker_sources.fail_at(2, StopIteration)), num_processes=1)
    with pytest.raises(SourceError, match="the source raised StopIteration while it made batch 2"):
        with staging.StagingSession() as sess:
            for _ in range(9):
                sess.run(batch)


def test_killed_at_any_time_nothing_is_lost_or_doubled(graph: Any) -> None:
    """One kill after every few batches, of whichever worker: in its start, in a batch, or between two."""
    kills = int(os.environ.get("STAGING_TF1_WORKER_KILLS", "6" if with_slow() else "4"))
    batch = staging.staged(digits(4000, epochs=None), num_processes=2)
    got = []
    with staging.StagingSession() as sess:
        pool = pool_in(sess, graph)
        for step in range(kills * 20):
            got.append(sess.run(batch))
            # A worker that a thread is replacing is not among them.
            if step % 20 == 10 and (pids := pool.pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[step // 20 % len(pids)], signal.SIGKILL)
    assert_equal(got, first(digits(4000, epochs=None), kills * 20))


def test_a_drain_delivers_what_was_read(graph: Any) -> None:
    batch = staging.staged(digits(4000, epochs=None), num_processes=2, capacity=4)
    with staging.StagingSession() as sess:
        got = [sess.run(batch) for _ in range(3)]
        sess.drain()
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                got.append(sess.run(batch))
    assert_equal(got, first(digits(4000, epochs=None), len(got)))


def test_a_hanging_worker_is_in_the_stall_report(graph: Any) -> None:
    batch = staging.staged(Reporting(9, worker_sources.hang_at(0)), num_processes=1)
    with pytest.raises(StallError, match=r"worker_sources.py:\d+ in hold_the_lock\(\)"):
        # On a loaded machine, a process needs seconds to start.
        with staging.StagingSession(stall_secs=6, stall_raises=True) as sess:
            sess.run(batch)


NO_STREAM = "which can only be read in order: no proc"
GRAPH = f"got num_processes= with values that the graph computes, {NO_STREAM}"
# What is staged, the options, and what is raised.
REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], type[Exception], str]] = {
    "a generator": (
        lambda: lambda: iter([np.zeros(2)]),
        {"num_processes": 2},
        TypeError,
        f"got num_processes= with a GeneratorSource, {NO_STREAM}",
    ),
    "a dataset": (lambda: tf.data.Dataset.range(3).batch(2), {"num_processes": 2}, TypeError, GRAPH),
    "a tensor": (lambda: tf.constant([1, 2]), {"num_processes": 2}, TypeError, GRAPH),
    "threads": (
        digits,
        {"num_processes": 2, "num_threads": 3},
        ValueError,
        "got num_threads=3 and num_processes=2. Each worker process has feed threads of its own. Leave num_threads out",
    ),
    "lockstep": (
        digits,
        {"num_processes": 2, "lockstep": True},
        ValueError,
        "got num_processes=2 with lockstep=True, which reads each batch when a step needs it",
    ),
    "a negative number": (
        digits,
        {"num_processes": -2},
        ValueError,
        "got num_processes=-2, expected a whole number from 0 to 512 .worker processes for each tower; 0 makes the",
    ),
    "AUTOTUNE": (
        digits,
        {"num_processes": tf.data.AUTOTUNE},
        ValueError,
        r"got num_processes=-1 \(AUTOTUNE\)\. The processes start once, so their number cannot follow the load\.",
    ),
    "a bool": (digits, {"num_processes": True}, TypeError, "got num_processes=True, expected a w"),
    "too many for the towers": (
        digits,
        {"num_processes": 300, "devices": ["/cpu:0"] * 2},
        ValueError,
        "from 0 to 256",
    ),
    "a source with a generator": (
        lambda: Reporting(3, (n for n in ())),  # type: ignore[arg-type]
        {"num_processes": 1},
        TypeError,
        "a source that cannot be moved to another process: Reporting._make is a generator .TypeError: cannot pickle",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together_is_refused_before_anything_is_made(graph: Any, case: str) -> None:
    values, options, kind, message = REFUSED[case]
    given = values()
    before = graph.get_operations()
    with pytest.raises(kind, match=message):
        staging.staged(given, **options)
    assert graph.get_operations() == before


def test_several_sources_are_refused(graph: Any) -> None:
    said = "got 2 sources and num_processes=2, expected one source. Join them: staging_tf1.sources.concatenate or mix."
    with pytest.raises(ValueError, match=said):
        staging.CustomRunner([digits(), digits()], num_processes=2)


def test_the_warning_of_a_random_generator_names_the_line(graph: Any) -> None:
    rng = np.random.default_rng(0)
    source = digits(transform=lambda batch: {**batch, "x": batch["x"] + rng.random()})
    for define in (staging.staged, staging.CustomRunner):
        with pytest.warns(
            errors.StagingWarning, match="has a random generator: ArraySource._batching.options.transform"
        ) as caught:
            define(source, num_processes=1)
        assert caught[0].filename == __file__


def test_nothing_is_left_after_a_session(graph: Any) -> None:
    batch = staging.staged(digits(epochs=None), num_processes=2)
    with staging.StagingSession() as sess:
        sess.run(batch)
        pool = pool_in(sess, graph)
        pids = pool.pids
    assert len(pids) == 2 and not pool.pids
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("feed:")]


def test_batches_that_the_chief_hands_out(graph: Any) -> None:
    batch = staging.staged(worker_sources.numbers(20), share="dynamic", num_processes=2)
    with staging.StagingSession() as sess:
        (got,) = to_the_end(lambda parts: sess.run(parts), [batch])
    assert got == list(range(20))
