"""The figures of a pipeline, and the verdict on it, for sources of known speed."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from load import slowdown

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

_STEPS = 20
# Longer on a busy machine, where a thread is scheduled later.
_SECS = 0.01 * slowdown()


def _busy(secs: float) -> None:
    """Take this many seconds, whatever the load of the machine."""
    threading.Event().wait(secs)


def _paced(secs: float) -> Any:
    def batches() -> Iterator[Any]:
        for number in range(_STEPS + 1):
            _busy(secs)
            yield np.full([2, 8], number, np.float32)

    return staging.sources.GeneratorSource(batches, spec=tf.TensorSpec([2, 8], tf.float32))


def _stats(fetch: Any) -> staging.PipelineStats:
    with staging.StagingSession() as sess:
        sess.run(fetch)  # the first step compiles the graph
        for _ in range(_STEPS - 1):
            sess.run(fetch)
        (stats,) = sess.stats()
    return stats


def _step_of(secs: float, x: Any) -> Any:
    def compute(value: Any) -> Any:
        _busy(secs)
        return value

    return tf.numpy_function(compute, [x], tf.float32)


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.slow_cases(r"(?!(False)$).*")
def test_a_source_five_times_as_slow_as_the_step_binds_the_loop(graph: Any, lockstep: bool) -> None:
    x = staging.staged(_paced(5 * _SECS), lockstep=lockstep, name="train")
    stats = _stats(_step_of(_SECS, x))
    # In lockstep the step waits for all of it, 5/6; with a thread, for the part that the step does not overlap, 4/5.
    # Other load on the machine makes the step longer.
    assert 0.5 < stats.waited_share < 0.95
    assert stats.verdict.startswith("input-bound: steps waited ")
    cure = "let a thread read ahead: lockstep=False" if lockstep else "make the source faster, or use one that "
    assert cure in stats.verdict
    assert stats.source_secs >= _STEPS * 5 * _SECS


def test_a_step_five_times_as_slow_as_the_source_binds_the_loop(graph: Any) -> None:
    x = staging.staged(_paced(_SECS), name="train")
    stats = _stats(_step_of(5 * _SECS, x))
    assert stats.waited_share < 0.1
    assert stats.verdict.startswith("compute-bound: steps waited ")
    assert " of the time, the input keeps up" in stats.verdict
    # The feed thread, which has nothing else to do, waits for most of the step.
    assert stats.feeder_wait_secs > stats.source_secs
    assert stats.occupancy > 1


def test_the_fast_path_counts_into_the_time_of_the_loop(graph: Any) -> None:
    paced = _step_of(_SECS, staging.staged(_paced(5 * _SECS), name="train"))
    with staging.StagingSession() as sess:
        step = sess.make_callable(paced)
        for _ in range(_STEPS):
            step()
        (stats,) = sess.stats()
    assert 0.5 < stats.waited_share < 0.95


FLOATS, TEXTS = np.zeros([41, 16], np.float32), np.array(["\N{SNOWMAN}" * 100] * 41)


def _arrays(arrays: Any, count: int = 40, **options: Any) -> Callable[[], Any]:
    """Areas of 3 batches of 4 rows. Of 40 rows each batch has 4; of 41 the last one has 1, and no shape is known."""
    rows = tf.nest.map_structure(lambda array: array[:count], arrays)
    return lambda: staging.staged(ArraySource(rows, batch_size=4, epochs=1), **{"capacity": 3, **options})


def _queue_of_records() -> Any:
    source = ArraySource(FLOATS[:40], batch_size=4, epochs=1)
    return staging.CustomRunner(source, capacity=20, min_after_dequeue=5).get_inputs()


# What a full area or queue holds, in bytes, after all batches were delivered: of unequal ones, as many as their mean.
MEMORY: dict[str, tuple[Callable[[], Any], float]] = {
    "an area": (_arrays(FLOATS), 3 * 4 * 16 * 4),
    "of unequal batches": (_arrays(FLOATS, 41), 3 * 41 / 11 * 16 * 4),
    "after a cast": (_arrays(FLOATS, cast=tf.float16), 3 * 4 * 16 * 2),
    "of unequal batches after a cast": (_arrays(FLOATS, 41, cast=tf.float16), 3 * 41 / 11 * 16 * 2),
    "two components, one cast": (_arrays((FLOATS, FLOATS), cast={"[0]": tf.float64}), 3 * 4 * 16 * (8 + 4)),
    "strings": (_arrays(TEXTS), 3 * 4 * 300),
    "strings in lockstep": (_arrays(TEXTS, lockstep=True), 3 * 4 * 300),
    "strings beside a cast": (_arrays((TEXTS, FLOATS), cast={"[1]": tf.float16}), 3 * 4 * (300 + 16 * 2)),
    "each of two towers": (_arrays(FLOATS, devices=["/cpu:0"] * 2), 3 * 4 * 16 * 4),
    "a queue of records": (_queue_of_records, 20 * 16 * 4),
    "tensors of known shapes": (
        lambda: staging.staged(tf.data.Dataset.range(40).batch(4, drop_remainder=True), capacity=3),
        3 * 4 * 8,
    ),
    "tensors of others": (lambda: staging.staged(tf.data.Dataset.range(41).batch(4)), 0),
}


@pytest.mark.parametrize("kind", MEMORY)
def test_memory_held_at_most(graph: Any, kind: str) -> None:
    make, held = MEMORY[kind]
    batch = make()
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            sess.run(batch)
    towers = len(batch) if isinstance(batch, list) else 1
    assert [stats.full_bytes for stats in sess.stats()] == pytest.approx([held] * towers, abs=1)


def test_memory_is_shown_in_units_of_1024(graph: Any) -> None:
    stats = _stats_of_all(_arrays(FLOATS)())
    for size, shown in ((768, "768 bytes"), (1536, "1.5 KiB"), (2 << 20, "2.0 MiB")):
        assert f"; memory held at most {shown}; " in str(dataclasses.replace(stats, full_bytes=size))


def _stats_of_all(x: Any) -> staging.PipelineStats:
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            sess.run(x)
    (stats,) = sess.stats()
    return stats


def test_lockstep_counts_what_it_reads(graph: Any) -> None:
    source = staging.sources.ArraySource(np.zeros([10, 16], np.float32), batch_size=4, epochs=1)
    stats = _stats_of_all(staging.staged(source, lockstep=True))
    assert (stats.batches, stats.records, stats.bytes, stats.kind, stats.threads) == (3, 10, 640, "lockstep", 0)


def test_scalars_for_tensorboard(graph: Any, tmp_path: Path) -> None:
    tf.train.get_or_create_global_step()
    x = staging.staged(staging.sources.ArraySource(np.zeros([40, 4]), batch_size=4, epochs=1), name="train")
    with tf.control_dependencies([x]):
        step = tf.train.get_global_step().assign_add(1).op
    hook = staging.StagingSummaryHook(save_steps=4, output_dir=str(tmp_path))
    with staging.StagingSession(hooks=[hook]) as sess:
        while not sess.should_stop():
            sess.run(step)
    scalars = _scalars(tmp_path)
    steps = [number for number, _ in scalars["staging/train/fraction_full"]]
    assert steps == [4, 8, 10]
    assert all(0 <= value <= 1 for _, value in scalars["staging/train/fraction_full"])
    assert all(0 <= value <= 1 for _, value in scalars["staging/train/waited_share"])
    assert [value for _, value in scalars["staging/train/batches"]] == [4, 8, 10]
    assert set(scalars) == {
        f"staging/train/{name}"
        for name in ("fraction_full", "waited_share", "batches", "batches_per_sec", "feeder_wait_secs", "source_secs")
    }


def _scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for path in folder.glob("events*"):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_scalars_need_a_folder(graph: Any) -> None:
    with pytest.raises(ValueError, match="StagingSummaryHook got no output_dir"):
        staging.StagingSummaryHook()
    with pytest.raises(ValueError, match="StagingSummaryHook got no output_dir"):
        staging.StagingSummaryHook(output_dir="")


@pytest.mark.parametrize("start", [staging.start, tf.train.start_queue_runners])
def test_a_plain_session_has_figures_once_something_was_started(graph: Any, start: Any) -> None:
    x = staging.staged(ArraySource(np.arange(6), batch_size=1), name="x")
    staging.staged(ArraySource(np.arange(6), batch_size=1), lockstep=start is not staging.start, name="y")
    with tf.Session() as sess:
        assert staging.stats(sess) == staging.stats() == []
        coord = tf.train.Coordinator()
        threads = start(sess, coord)
        sess.run(x), sess.run(x)
        found = {stats.name: stats.batches for stats in staging.stats(sess)}
        assert found == ({"x": 2, "y": 0} if start is staging.start else {"x": 2}), "lockstep has not started"
        coord.request_stop()
        coord.join(threads)
