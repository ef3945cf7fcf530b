"""`LockProbe`: how often the GIL is held while feed threads are in their sources."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from staging_tf1.background import Background
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.threads import ENDED
from staging_tf1.graph.state import session_state_of
from staging_tf1.sources import Source, StreamSource

if sys.platform == "linux":
    import resource

# Each sample takes the GIL once, for some 50 us: a thousandth of the time.
_EVERY_SECS = 0.05
# Fewer samples give no reliable share.
_LEAST_SAMPLES = 8


@dataclass
class _Samples:
    """The samples at which a feed thread of one pipeline was in the source."""

    count: int = 0
    # How many met a held GIL.
    held: int = 0
    # The time from each sample to the next.
    secs: float = 0.0
    # The CPU time of the main thread meanwhile.
    main_secs: float = 0.0


class LockProbe:
    """One thread per session that wakes every 50 ms and notes whether another thread holds the GIL.

    A thread that wakes up needs the GIL. If it is held, the thread sleeps a second time, and the kernel counts that as
    one more voluntary context switch. Two other signs would mislead: on busy cores every thread wakes late, and numpy
    uses CPU time without holding the GIL.

    What counts is where the feed threads were when it woke. When it has the GIL at last, the thread that held it has
    left its source, unless it was there for longer than `sys.getswitchinterval()`.

    The kernel does not tell which thread held it. A main thread that computes may have done so, for example to copy
    what a step fetches, and its CPU time is left out.
    """

    def __init__(self, session: Any) -> None:
        # Weak, because a plain session that nobody closes must not be kept alive by the thread.
        self._session = weakref.ref(session)
        # By run: one that starts again may have other threads.
        self._samples: weakref.WeakKeyDictionary[Any, _Samples] = weakref.WeakKeyDictionary()
        self._thread = Background("staging:lock", self._watch)
        # Held to start it.
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start, unless it has started, or no feed thread reads a source. Only Linux counts switches per thread."""
        with self._lock:
            if sys.platform == "linux" and self._feeding() and not self._thread.is_alive():
                self._thread = Background("staging:lock", self._watch)
                self._thread.start()

    def stop(self) -> None:
        """Stop, and join the thread. May be called twice."""
        self._thread.stop()

    def held_share(self, pipeline: Pipeline) -> float | None:
        """Return the share of the time in the source of `pipeline` during which feed threads held the GIL, from 0 to 1.

        None if there are too few samples to tell.
        """
        samples = self._samples.get(self._runs().get(pipeline, self), _Samples())
        if samples.count < _LEAST_SAMPLES:
            return None
        return max(0.0, samples.held / samples.count - samples.main_secs / samples.secs)

    def _watch(self) -> Iterator[float]:
        while self._feeding():
            before, began, main_before = _sleeps(), time.perf_counter(), _main_secs()
            yield _EVERY_SECS
            held, woke = _sleeps() - before > 1, began + _EVERY_SECS
            secs, main_secs = time.perf_counter() - began, _main_secs() - main_before
            for samples in self._in_source_at(woke):
                samples.count += 1
                samples.held += held
                samples.secs += secs
                samples.main_secs += main_secs

    def _in_source_at(self, moment: float) -> list[_Samples]:
        runs = [run for run in self._feeding() if any(state.in_source_at(moment) for state in run.states)]
        return [self._samples.setdefault(run, _Samples()) for run in runs]

    def _feeding(self) -> list[Any]:
        """Return the runs whose feed threads read a source."""
        runs = [run for run in list(self._runs().values()) if _reads(run.pipeline) and not run.delivery.stopping]
        return [run for run in runs if any(state.doing != ENDED for state in run.states)]

    def _runs(self) -> dict[Pipeline, Any]:
        session = self._session()
        return {} if session is None else session_state_of(session).runs


def lock_probe_of(session: Any) -> LockProbe:
    """Return the probe of `session`; the first call creates it."""
    state = session_state_of(session)
    state.lock_probe = state.lock_probe or LockProbe(session)
    return state.lock_probe


def _reads(pipeline: Pipeline) -> bool:
    """Whether feed threads of this process make its batches."""
    return any(
        isinstance(producer.source, (Source, StreamSource)) and not producer.plan.num_processes
        for producer in pipeline.producers
    )


def _sleeps() -> int:
    """Return how often the calling thread has gone to sleep."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if sys.platform == "linux" else 0


def _main_secs() -> float:
    """Return the CPU time of the main thread."""
    ident = threading.main_thread().ident
    if sys.platform != "linux" or ident is None:
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
