"""What a loop that waits for its input is told: threads where the source waits, processes where it holds the GIL."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from running import feed_threads

import staging_tf1 as staging
from staging_tf1.cores import usable_cores
from staging_tf1.feed.threads import ThreadState
from staging_tf1.watch import advice
from staging_tf1.watch.advice import SourceWork, bottleneck

_LARGE = np.ones(2_000_000, np.float32)


def in_python(batch: Any) -> Any:
    """Hold the GIL for some milliseconds."""
    total = 0
    for number in range(60_000):
        total += number * number
    return batch + (total & 1)


def briefly(batch: Any) -> Any:
    """Hold the GIL for less than `sys.getswitchinterval()`, and then leave it in the put."""
    total = 0
    for number in range(15_000):
        total += number * number
    return batch + (total & 1)


def in_numpy(batch: Any) -> Any:
    """Compute for some milliseconds without the GIL."""
    return batch + np.sqrt(_LARGE)[:1].astype(batch.dtype)


def waiting(batch: Any) -> Any:
    """Wait, as for a disk or a network."""
    threading.Event().wait(0.005)
    return batch


def decoding() -> Callable[[Any], Any]:
    """Return a transform that decodes with Pillow, which needs the GIL for a part of the work."""
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(np.random.default_rng(0).integers(0, 256, (192, 192, 3), np.uint8)).save(file, "JPEG")

    def decode(batch: Any) -> Any:
        for _ in range(4):
            with image.open(io.BytesIO(file.getvalue())) as opened:
                batch = batch + np.asarray(opened)[0, 0, 0] * 0
        return batch

    return decode


def work_of(transform: Callable[[Any], Any], threads: int, between: Callable[[Any], Any] = id) -> staging.PipelineStats:
    """Run a loop until the GIL has been looked at often enough. It calls `between` with each batch."""
    with tf.Graph().as_default():
        return _work_in_graph(transform, threads, between)


def _work_in_graph(
    transform: Callable[[Any], Any], threads: int, between: Callable[[Any], Any]
) -> staging.PipelineStats:
    x = staging.staged(
        staging.sources.ArraySource(np.arange(64), batch_size=1, transform=transform), num_threads=threads
    )
    with staging.StagingSession() as sess:
        step = sess.make_callable(x)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            # stats() holds the GIL itself, so it is called seldom. 0.9 s are about 18 samples.
            pause = time.monotonic() + 0.3
            while time.monotonic() < pause:
                between(step())
            (stats,) = sess.stats()
            if stats.lock_share is not None and stats.loop_secs > 0.9 and stats.batches > 16:
                break
    return stats


def work_until(good: Callable[[float, str], bool], *args: Any, **options: Any) -> staging.PipelineStats:
    """Return what `work_of` does, from the first of four runs whose `lock_share` and verdict are good.

    On a busy machine, the loop may be stopped when it holds the GIL, and a thread when it computes.
    """
    for _ in range(4):
        stats = work_of(*args, **options)
        if stats.lock_share is not None and good(stats.lock_share, stats.verdict):
            return stats
    raise AssertionError((stats.lock_share, stats.verdict))


# One thread, where the default run has two; sources that leave the GIL to others are read by one.
@pytest.mark.slow_cases("in_python-1")
@pytest.mark.skipif(usable_cores() < 2, reason="processes do not help on one core")
@pytest.mark.parametrize(("transform", "threads"), [(in_python, 1), (in_python, 2), (briefly, 1)])
def test_python_that_computes_is_told_to_use_processes(transform: Any, threads: int) -> None:
    cure = "use processes (num_processes="
    stats = work_until(lambda share, verdict: share > 0.7 and cure in verdict, transform, threads)
    assert stats.source_cpu_secs > 0.2 * stats.source_secs / threads
    assert f"holds the GIL {stats.lock_share:.0%}".replace("%", " %") in stats.verdict


@pytest.mark.parametrize("transform", [in_numpy, waiting])
def test_what_leaves_the_gil_to_others_is_told_to_use_threads(transform: Callable[[Any], Any]) -> None:
    cure = "; add feed threads (num_threads=2), or make the source faster"
    stats = work_until(lambda share, verdict: share < 0.4 and cure in verdict, transform, threads=1)
    waits = stats.source_cpu_secs < 0.3 * stats.source_secs
    assert waits or transform is in_numpy


def test_a_loop_that_holds_the_gil_itself_is_not_told_to_use_processes() -> None:
    work_until(lambda share, verdict: share < 0.4 and "processes" not in verdict, in_numpy, 1, between=in_python)


def test_decoding_holds_the_gil_for_a_part_of_its_time() -> None:
    stats = work_of(decoding(), threads=1)
    assert stats.lock_share is not None and 0 <= stats.lock_share < 1
    held = stats.lock_share > advice._HELD and stats.source_cpu_secs > advice._COMPUTES * stats.source_secs
    assert ("processes" in stats.verdict) == (held and usable_cores() > 1)


def test_a_short_run_tells_nothing_of_the_gil_and_leaves_no_thread(graph: Any) -> None:
    x = staging.staged(staging.sources.ArraySource(np.arange(4), batch_size=1, epochs=1))
    with staging.StagingSession() as sess:
        sess.run(x)
        assert "staging:lock" in feed_threads()
        (stats,) = sess.stats()
    assert stats.lock_share is None and feed_threads() == []


def test_where_processes_make_the_batches_nothing_looks_at_the_gil(graph: Any) -> None:
    x = staging.staged(staging.sources.ArraySource(np.arange(4), batch_size=1), num_processes=1)
    with staging.StagingSession() as sess:
        sess.run(x)
        (stats,) = sess.stats()
        assert "staging:lock" not in feed_threads()
    assert (stats.processes, stats.lock_share) == (1, None)


@pytest.mark.parametrize("how", ["lockstep", "dataset"])
def test_where_no_thread_reads_a_source_nothing_looks_at_the_gil(graph: Any, how: str) -> None:
    source = staging.sources.ArraySource(np.arange(4), batch_size=1)
    x = staging.staged(source, lockstep=True) if how == "lockstep" else staging.staged(tf.data.Dataset.range(9))
    with staging.StagingSession() as sess:
        sess.run(x)
        assert "staging:lock" not in feed_threads()


@pytest.mark.parametrize(
    ("work", "kind", "cure"),
    [
        (SourceWork(0.92, 1.0, 2.6), "source", "holds the GIL 92 % of its time: use processes (num_processes=3), "),
        (SourceWork(0.92, 1.0, 40.0), "source", "use processes (num_processes=8), because more threads would wait"),
        (SourceWork(0.92, 1.0, 0.4), "source", "use processes (num_processes=2)"),
        (SourceWork(0.92, 1.0, 2.6), "stream", "use a source with random access, such as MapSource, with processes"),
        (SourceWork(0.92, 1.0), "graph", "make the ops that compute it faster"),
        (SourceWork(0.92, 1.0), "lockstep", "let a thread read ahead"),
        (SourceWork(0.39, 1.0), "source", "add feed threads (num_threads=2)"),
        # The GIL is held by the program's own loop, while the source waits.
        (SourceWork(0.92, 0.1), "source", "add feed threads (num_threads=2)"),
        (SourceWork(None, 1.0), "source", "add feed threads (num_threads=2)"),
    ],
)
def test_the_advice(work: SourceWork, kind: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "usable_cores", lambda: 8)
    assert cure in bottleneck(0.5, kind, 1, work)


@pytest.mark.parametrize(
    ("work", "kind", "verdict"),
    [
        (SourceWork(0.78, 1.0, 0.85, 0.8), "source", "input-bound: steps waited 6 % of the time, and also for the GIL"),
        (SourceWork(0.78, 1.0, 0.85, 0.8), "stream", "input-bound: steps waited 6 % of the time, and also for the GIL"),
        # Threads on several cores hold the GIL one at a time.
        (SourceWork(0.45, 2.0, 2.2, 2.0), "source", "compute-bound: "),
        # The threads have filled the area, and rest.
        (SourceWork(0.95, 1.0, 0.2, 0.2), "source", "compute-bound: "),
        (SourceWork(None, 1.0, 0.85, 0.8), "source", "compute-bound: "),
        (SourceWork(0.78, 1.0, 0.85, 0.8), "lockstep", "compute-bound: "),
    ],
)
def test_a_batch_that_is_ready_does_not_help_a_step_without_the_gil(
    work: SourceWork, kind: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "usable_cores", lambda: 8)
    told = bottleneck(0.06, kind, 2, work)
    assert told.startswith(verdict)
    assert ("with processes" in told or "use processes" in told) == verdict.startswith("input-bound")


@pytest.mark.parametrize(
    ("processes", "cure"),
    [
        (3, "add worker processes (num_processes=6), or make the source faster"),
        (6, "add worker processes (num_processes=8), or make the source faster"),
        (8, "make the source faster: its 8 worker processes already have all 8 cores"),
    ],
)
def test_processes_are_added_up_to_the_number_of_cores(
    processes: int, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "usable_cores", lambda: 8)
    assert bottleneck(0.5, "processes", processes).endswith(f"; {cure}")
    assert bottleneck(0.05, "processes", processes).startswith("compute-bound: ")


def test_processes_are_no_advice_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "usable_cores", lambda: 1)
    assert "add feed threads" in bottleneck(0.5, "source", 1, SourceWork(0.92, 1.0, 2.6))


def test_where_a_thread_was_a_moment_ago() -> None:
    state = ThreadState("feed:train:0")
    before = time.perf_counter()
    began = state.enter_source()
    inside = time.perf_counter()
    assert state.in_source_at(inside) and not state.in_source_at(before)
    state.leave_source(began, "putting")
    after = time.perf_counter()
    assert state.in_source_at(inside) and not state.in_source_at(after) and not state.in_source_at(before)
    state.enter_source()
    assert state.in_source_at(inside) and not state.in_source_at(after) and state.in_source_at(time.perf_counter())


def test_the_cpu_time_of_one_batch_in_eight_is_measured() -> None:
    state = ThreadState("feed:train:0")
    for _ in range(16):
        began = state.enter_source()
        assert (began is None) == bool(state.batches % 8)
        state.leave_source(began, "putting")
        state.batches += 1
    assert 0 < state.measured_secs < state.source_secs
    assert 0 <= state.cores_in_source <= 1.5
