"""`LockProbe`: how often the GIL is held while feed threads are in their sources."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.threads import ENDED, ThreadState
from staging_tf1.garbage import join_thread
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
    # From one sample to the next, and the CPU time of the main thread.
    secs: float = 0.0
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

    def __init__(self) -> None:
        self._sources: list[tuple[Pipeline, list[ThreadState]]] = []
        self._samples: dict[Pipeline, _Samples] = {}
        # Held until the end. A wait for it is one call of C, and so one sleep.
        self._ending = threading.Lock()
        self._ending.acquire()
        self._thread = threading.Thread(target=self._watch, name="staging:lock", daemon=True)

    def start(self, feeding: Sequence[tuple[Pipeline, list[ThreadState]]]) -> None:
        """Start, unless no feed thread reads a source, or the kernel does not count per thread, as only Linux does.

        Args:
          feeding: the pipelines, each with the states of its feed threads.
        """
        self._sources = [(pipeline, states) for pipeline, states in feeding if _reads(pipeline)]
        if self._sources and sys.platform == "linux":
            self._thread.start()

    def stop(self) -> None:
        """Stop, and join the thread. May be called twice."""
        if self._ending.locked():
            self._ending.release()
        join_thread(self._thread)

    def held_share(self, pipeline: Pipeline) -> float | None:
        """Return the share of the time in the source of `pipeline` during which feed threads held the GIL, from 0 to 1.

        None if there are too few samples to tell.
        """
        samples = self._samples.get(pipeline, _Samples())
        if samples.count < _LEAST_SAMPLES:
            return None
        return max(0.0, samples.held / samples.count - samples.main_secs / samples.secs)

    def _watch(self) -> None:
        before, began, main_before = _sleeps(), time.perf_counter(), _main_secs()
        # A plain session that nobody closes must not be kept alive longer than its feed threads keep it.
        while self._feeding() and not self._ending.acquire(timeout=_EVERY_SECS):
            held, woke = _sleeps() - before > 1, began + _EVERY_SECS
            secs, main_secs = time.perf_counter() - began, _main_secs() - main_before
            for pipeline, states in self._sources:
                if any(state.in_source_at(woke) for state in states):
                    samples = self._samples.setdefault(pipeline, _Samples())
                    samples.count += 1
                    samples.held += held
                    samples.secs += secs
                    samples.main_secs += main_secs
            before, began, main_before = _sleeps(), time.perf_counter(), _main_secs()

    def _feeding(self) -> bool:
        return any(state.doing != ENDED for _, states in self._sources for state in states)


def _reads(pipeline: Pipeline) -> bool:
    """Whether feed threads of this process make its batches."""
    return any(
        isinstance(producer.source, (Source, StreamSource)) and not producer.num_processes
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
