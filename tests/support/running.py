"""Finds the threads that a test leaves running, and what runs in a session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.pipeline_run import PipelineRun
from staging_tf1.graph.state import feeding_in

# Threads that live as long as the process and belong to no test: pytest's timer, tqdm's monitor, TensorFlow's summary
# writer, which TensorFlow keeps for the next writer to the same folder, a thread of TensorFlow's pool that has run
# Python, which cannot be joined, the pool with which Grain frees memory, and fsspec's loop with its pool.
_GRAIN_POOL = ("(worker)", "(_handle_workers)", "(_handle_tasks)", "(_handle_results)")
_FSSPEC = ("fsspecIO", "asyncio_")
_LASTING = ("pytest_timeout", "TMonitor", "_EventLoggerThread", "_DummyThread", *_GRAIN_POOL, *_FSSPEC)


def left_over(before: set[threading.Thread], grace_secs: float) -> list[str]:
    """Return the names of the threads that were started since `before` and still run.

    A thread that has finished its work may still be returning from its last function. All threads together have
    `grace_secs` to end.
    """
    deadline = time.monotonic() + grace_secs
    while True:
        running = [thread for thread in threading.enumerate() if thread not in before and not _lasts(thread)]
        if not running or time.monotonic() > deadline:
            return [thread.name for thread in running]
        for thread in running:
            # A thread whose start was interrupted by Ctrl-C cannot be joined until it has begun.
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


def _lasts(thread: threading.Thread) -> bool:
    return any(word in f"{type(thread).__name__} {thread.name}" for word in _LASTING)


def feed_threads() -> list[str]:
    """Return the names of this package's running threads."""
    return sorted(t.name for t in threading.enumerate() if t.name.startswith(("feed:", "staging:")))


@contextmanager
def graphs_as_built() -> Iterator[None]:
    """Turn TensorFlow's graph optimizer off, for sessions without a config, too."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def run_in(session: Any, pipeline: Pipeline) -> PipelineRun | None:
    """Return the run of `pipeline` in `session`; None if it was not started there."""
    feeding = feeding_in(session)
    return None if feeding is None else feeding.runs.get(pipeline)


def runs_in(session: Any, pipelines: Iterable[Pipeline]) -> list[PipelineRun]:
    """Return the runs of those of `pipelines` that were started in `session`."""
    return [run for pipeline in pipelines if (run := run_in(session, pipeline)) is not None]
