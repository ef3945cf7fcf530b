"""The verdict goes by the measurements of half a minute: bursts do not flip it."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given

import staging_tf1 as staging
from staging_tf1.sources import ArraySource
from staging_tf1.watch.stats import PipelineStats
from staging_tf1.watch.waiting import WaitMeter


def verdict(measured: list[float], of_run: float | None = None, kind: str = "source", batches: int = 100) -> str:
    """The verdict of a run whose steps waited these shares of the time, and `of_run` of all of it."""
    share = sum(measured) / max(1, len(measured)) if of_run is None else of_run
    return PipelineStats(
        name="train",
        batches=batches,
        records=100,
        bytes=0,
        wait_secs=share * 30,
        feeder_wait_secs=0.0,
        source_secs=1.0,
        occupancy=1.0,
        capacity=2,
        loop_secs=30.0,
        kind=kind,
        threads=1,
        recent_waited_shares=tuple(measured),
    ).verdict


TABLE = {
    "quiet": ([0.02] * 60, "compute-bound: steps waited 2 % of the time"),
    "starving": ([0.6] * 60, "input-bound: steps waited 60 % of the time"),
    "a burst": ([0.02] * 40 + [0.9] * 20, "compute-bound: steps waited 2 % "),
    "an idle moment": ([0.5] * 50 + [0.0] * 10, "input-bound: steps waited 50 % "),
    "on the edge": ([0.08, 0.12] * 10 + [0.12], "input-bound: steps waited 12 % "),
    "at the bound": ([0.1] * 4, "input-bound: steps waited 10 % "),
    "too short": ([0.9] * 3, "input-bound: steps waited 90 % "),
    "nothing yet": ([], "compute-bound: steps waited 0 % "),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_verdict(case: str) -> None:
    measured, said = TABLE[case]
    assert verdict(measured).startswith(said)


def test_a_slow_first_step_does_not_count() -> None:
    assert verdict([0.01] * 20, of_run=0.4) == "compute-bound: steps waited 1 % of the time, the input keeps up"


def test_nothing_is_said_of_a_pipeline_that_no_step_has_used() -> None:
    for measured in ([], [0.0] * 60):
        assert verdict(measured, batches=0) == "bottleneck unknown: no step has taken a batch from this pipeline"
    # The first step still waits.
    assert verdict([0.9] * 60, batches=0).startswith("input-bound: ")


@given(
    st.sampled_from([0.02, 0.3]),
    st.integers(8, 60),
    st.floats(0.0, 0.49),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.randoms(use_true_random=False),
)
def test_no_burst_below_a_half_flips_it(
    share: float, count: int, part: float, burst: float, dice: random.Random
) -> None:
    measured = [share] * count
    for place in dice.sample(range(count), int(part * count)):
        measured[place] = burst
    assert verdict(measured).startswith("compute-bound: " if share < 0.1 else "input-bound: ")


def test_the_kind_of_a_seeded_shuffle_queue(graph: Any) -> None:
    x = staging.CustomRunner(ArraySource(np.arange(8), batch_size=1), batch_size=1, seed=1).get_inputs()
    with staging.StagingSession() as sess:
        sess.run(x)
        (stats,) = sess.stats()
    assert stats.kind == "seeded"


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_measurement_is_taken_twice_a_second_at_most(graph: Any, lockstep: bool) -> None:
    x = staging.staged(ArraySource(np.arange(8), batch_size=1), lockstep=lockstep)
    with staging.StagingSession() as sess:
        runtime = sess._hook.runtime
        (pipeline,) = runtime._pipelines
        (sink,) = pipeline.sinks
        meter = WaitMeter(runtime.session, [pipeline], runtime.steps.states_of)
        # The clock is an argument.
        meter.before_step(1.0)
        assert meter.shares(sink) == ()
        for now, count in ((1.2, 0), (1.5, 1), (1.9, 1), (2.0, 2), (9.0, 3)):
            sess.run(x)
            meter.before_step(now)
            assert len(meter.shares(sink)) == count
        meter.before_step(20.0)
        assert len(meter.shares(sink)) == 3, "a time without a batch says nothing"
        for now in range(21, 100):
            sess.run(x)
            meter.before_step(float(now))
        assert len(meter.shares(sink)) == 60 and all(0 <= share <= 1 for share in meter.shares(sink))


def test_a_session_that_is_gone_is_not_measured(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(8), batch_size=1))
    with staging.StagingSession() as sess:
        sess.run(x)
        raw, (pipeline,) = sess._hook.runtime.session, sess._hook.runtime._pipelines
    meter = WaitMeter(raw, [pipeline], lambda pipeline: ())
    meter.before_step(1.0)
    meter.before_step(2.0)
    assert meter.shares(pipeline.sinks[0]) == ()


def test_the_figures_of_a_loop_have_them(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(8), batch_size=1))
    clock = tf.timestamp()
    with staging.StagingSession() as sess:
        began = sess.run(clock)
        while sess.run([x, clock])[1] - began < 1.2:
            pass
        (stats,) = sess.stats()
    assert len(stats.recent_waited_shares) == 2
