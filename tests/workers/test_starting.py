"""Worker processes that take long to start: reports say so, and do not call the source slow."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_sources
from pools import pools
from running import run_in
from worker_sources import LongImport

import staging_tf1 as staging
from staging_tf1.errors import StallError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    return path


@contextlib.contextmanager
def open_pipe(pipe: str) -> Iterator[None]:
    """Let the worker processes start, for as long as the block runs."""
    end = os.open(pipe, os.O_RDWR)
    try:
        yield
    finally:
        os.close(end)


def source(pipe: str) -> ArraySource:
    return ArraySource(np.arange(64), batch_size=2, epochs=None, transform=LongImport(pipe))


PIPELINES: dict[str, Callable[[Any], Any]] = {
    "two processes": lambda source: staging.staged(source, num_processes=2),
    "towers": lambda source: staging.staged(source, num_processes=1, devices=["/cpu:0"] * 2),
    "shuffle queue": lambda source: staging.CustomRunner(
        source, num_processes=2, min_after_dequeue=8, capacity=16, batch_size=2
    ).get_inputs(),
}


@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.matrix_cases(r"(?!(two processes)$).*")
def test_a_step_that_waits_for_their_start_is_told_so(graph: Any, pipe: str, kind: str) -> None:
    batch = PIPELINES[kind](source(pipe))
    # On a loaded machine, a process needs seconds to come as far as its import.
    with pytest.raises(StallError) as raised, staging.StagingSession(stall_secs=8, stall_raises=True) as session:
        session.run(batch)
    cause, *rest = str(raised.value).splitlines()[1:]
    assert "because what makes its batches is still starting, for " in cause
    assert "worker process '" in cause
    assert "worker_sources.py" in cause and "in importing()" in cause
    assert "Import what takes long" in cause
    assert any("waiting for the start of worker process" in line for line in rest)
    assert "source of" not in str(raised.value)


@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.slow_cases("towers")
def test_the_verdict_is_that_they_are_starting(graph: Any, pipe: str, kind: str) -> None:
    batch = PIPELINES[kind](source(pipe))
    with staging.StagingSession() as session:
        for stats in session.stats():
            assert stats.verdict == f"input-bound: {stats.starting} are still starting"
            assert f"worker processes '{stats.name}:0'" in stats.starting
        with open_pipe(pipe):
            session.run(batch)
        for stats in session.stats():
            assert stats.starting == ""
            assert "still starting" not in stats.verdict


def test_a_process_that_replaces_another_is_starting_too(graph: Any, pipe: str) -> None:
    batch = staging.staged(source(pipe), num_processes=1, capacity=1)
    with pytest.raises(StallError) as raised, staging.StagingSession(stall_secs=2, stall_raises=True) as session:
        with open_pipe(pipe):
            session.run(batch)
        (pool,) = run_in(session._hook.session, pipelines_of(graph)[0]).pools_of(0)
        os.kill(pool.pids[0], signal.SIGKILL)
        while True:
            session.run(batch)
    assert "is still starting, for " in str(raised.value)
    assert "worker process 'staged:0'" in str(raised.value)


def test_a_process_that_waits_for_its_first_batch_has_started() -> None:
    with pools(worker_sources.digits(epochs=None), processes=2) as (pool,):
        pool.make(0)
        wait = threading.Event()
        while any(worker.starting for worker in pool._running):
            wait.wait(0.01)
