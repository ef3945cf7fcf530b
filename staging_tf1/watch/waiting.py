"""`WaitMeter`: the share of the time that steps waited for each input, measurement by measurement."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.threads import ThreadState
from staging_tf1.graph.sink import GetFigures, Sink

# A measurement takes 0.1 ms.
_EVERY_SECS = 0.5
# Half a minute. A burst that is shorter than half of it changes no verdict.
_MOST = 60


class WaitMeter:
    """Reads the figures of the gets between two steps, at most twice a second, and keeps the last 60 differences.

    The graph only sums. A sum over the whole run would be moved by the compilation of the first step, and by every
    checkpoint or other program that holds the machine for a moment.

    Args:
      pipelines: the pipelines of its graph.
      reading: in lockstep, what the steps themselves have read for each tower of a pipeline.

    Attributes:
      due: when to measure next (perf_counter).
    """

    def __init__(
        self, session: Any, pipelines: Sequence[Pipeline], reading: Callable[[Pipeline], Sequence[ThreadState]]
    ) -> None:
        self._session, self._reading = session, reading
        self._sinks = [(pipeline, tower, sink) for pipeline in pipelines for tower, sink in enumerate(pipeline.sinks)]
        self._shares: dict[Sink, deque[float]] = {sink: deque(maxlen=_MOST) for _, _, sink in self._sinks}
        self._last: dict[Sink, GetFigures] = {}
        self._last_at = 0.0
        self.due = 0.0 if self._sinks else math.inf
        self._lock = threading.Lock()

    def shares(self, sink: Sink) -> tuple[float, ...]:
        return tuple(self._shares[sink])

    def before_step(self, now: float) -> None:
        """Measure if it is time. Call it before a step, which has taken nothing yet: nothing is lost by a Ctrl-C.

        Args:
          now: the time (perf_counter).
        """
        if now < self.due:
            return
        # Another thread that runs steps measures for all of them.
        if self._lock.acquire(blocking=False):
            try:
                self._measure(now)
            finally:
                self._lock.release()

    def _measure(self, now: float) -> None:
        # If the session is gone, there are none, and the step says so.
        counts = counts_of([sink for _, _, sink in self._sinks], self._session)
        secs = now - self._last_at
        for pipeline, tower, sink in self._sinks:
            if sink not in counts:
                continue
            figures = counts[sink].gets
            read_secs = sum(state.source_secs for state in self._reading(pipeline)[tower : tower + 1])
            figures = replace(figures, wait_secs=(figures.wait_secs or 0.0) + read_secs)
            last = self._last.get(sink)
            # A loop that took nothing, such as an evaluation, says nothing about this input.
            if last is not None and figures.batches > last.batches:
                self._shares[sink].append(figures.waited_share(last, secs))
            self._last[sink] = figures
        self._last_at, self.due = now, now + _EVERY_SECS
