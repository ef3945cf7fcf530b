"""What a loop is told: threads where the source waits, processes, too, where it computes in Python."""

from __future__ import annotations

import pytest

from staging_tf1.cores import usable_cores
from staging_tf1.feed.threads import ThreadState
from staging_tf1.watch import advice
from staging_tf1.watch.advice import bottleneck
from staging_tf1.watch.stats import PipelineStats


@pytest.mark.skipif(usable_cores() < 2, reason="processes do not help on one core")
@pytest.mark.parametrize(("source_cpu_secs", "is_told"), [(9.0, True), (1.0, False)])
def test_only_a_source_that_computes_is_told_of_processes(source_cpu_secs: float, is_told: bool) -> None:
    verdict = PipelineStats(
        name="train",
        batches=100,
        records=100,
        bytes=0,
        wait_secs=5.0,
        feeder_wait_secs=0.0,
        source_secs=10.0,
        occupancy=0.5,
        capacity=2,
        loop_secs=10.0,
        threads=1,
        source_cpu_secs=source_cpu_secs,
    ).verdict
    assert verdict.startswith("input-bound: steps waited 50 % of the time; add feed threads (num_threads=2)")
    assert verdict.endswith("use processes (num_processes=2)") == is_told


@pytest.mark.parametrize(
    ("cores", "of_loop", "kind", "cure"),
    [
        (
            1.0,
            1.3,
            "source",
            "; add feed threads (num_threads=4), or make the source faster; if the source computes in "
            "Python, which holds the GIL, use processes (num_processes=3)",
        ),
        (1.0, 40.0, "source", "use processes (num_processes=8)"),
        (1.0, 0.2, "source", "use processes (num_processes=2)"),
        (1.0, 1.3, "autotuned", "use processes (num_processes=3) without num_threads"),
        (1.0, 1.3, "stream", "use a source with random access, such as MapSource, with processes (num_processes=3)"),
        (1.0, 1.3, "graph", "order with several feed threads"),
        (1.0, 1.3, "lockstep", "let a thread read ahead: lockstep=False"),
        (0.1, 0.1, "source", "add feed threads (num_threads=4), or make the source faster"),
        (0.1, 0.1, "stream", "make the source faster, or use one that several threads can read, such as ArraySource"),
        # No advice that changes the order.
        (0.1, 0.1, "seeded", "the feeder and the taker of a seeded shuffle queue take turns"),
        (0.1, 0.1, "autotuned", "AUTOTUNE adds feed threads while they help (2 at present)"),
    ],
)
def test_the_advice(cores: float, of_loop: float, kind: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "usable_cores", lambda: 8)
    assert bottleneck(0.5, kind, 2, cores, of_loop).endswith(cure)


@pytest.mark.parametrize(
    ("of_loop", "kind", "is_told"),
    [(0.8, "source", True), (0.8, "stream", True), (0.2, "source", False), (0.8, "graph", False)],
)
def test_a_step_may_wait_for_the_gil_although_its_batch_is_ready(
    of_loop: float, kind: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "usable_cores", lambda: 8)
    told = bottleneck(0.06, kind, 2, 1.0, of_loop)
    assert told.startswith("compute-bound: steps waited 6 % of the time, the input keeps up")
    assert told.endswith("processes (num_processes=2)") == is_told


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
    assert "processes" not in bottleneck(0.5, "source", 1, 1.0, 2.6)


def test_the_cpu_time_of_one_batch_in_eight_is_measured() -> None:
    state = ThreadState("feed:train:0")
    for _ in range(16):
        began = state.enter_source()
        assert (began is None) == bool(state.batches % 8)
        state.leave_source(began, "putting")
        state.batches += 1
    assert 0 < state.measured_secs < state.source_secs
    assert 0 <= state.cores_in_source <= 1.5
