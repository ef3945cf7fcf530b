"""`GainWatch`: measures in a session whether `auto_stage()` pays, and says so if it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import logging

from staging_tf1._tf import run_unwrapped
from staging_tf1.auto.gain import Gain
from staging_tf1.auto.meaning import Meaning
from staging_tf1.cores import usable_cores
from staging_tf1.watch.stats import PipelineStats

# The first steps also make the kernels.
_LEFT_OUT = 5
# Enough for a mean, and early enough to stop a long run.
_JUDGED_AFTER = 200


class _Sums(NamedTuple):
    """What was measured until one moment."""

    at: float
    cpu: float
    # By pipeline: batches, seconds that steps waited, puts, seconds of the puts.
    figures: dict[str, tuple[float, ...]]


class GainWatch:
    """Counts the steps of one session that take a batch.

    Args:
      session: the session.
      meaning: of its graph.
      stats: returns the figures of the session.
    """

    def __init__(self, session: Any, meaning: Meaning, stats: Callable[[], list[PipelineStats]]) -> None:
        self._session, self._stats = session, stats
        self._meters = {each.sink.name: each.meter for each in meaning.groups if each.meter is not None}
        self._steps = 0
        self._first: _Sums | None = None

    def _sums(self) -> _Sums:
        at, cpu = time.perf_counter(), time.process_time()
        puts = run_unwrapped(self._session, {name: meter.value for name, meter in self._meters.items()})
        figures = {
            each.name: (each.batches, each.wait_secs or 0.0, *map(float, puts[each.name]))
            for each in self._stats()
            if each.name in puts
        }
        return _Sums(at, cpu, figures)

    def gains(self) -> list[Gain]:
        """Return what was measured; nothing in the first steps, or where TensorFlow refuses to read the clock."""
        if self._first is None:
            return []
        now = self._sums()
        secs = now.at - self._first.at
        busy = (now.cpu - self._first.cpu) / (secs * usable_cores())
        found = []
        for name, figures in now.figures.items():
            batches, waited, puts, put_secs = (a - b for a, b in zip(figures, self._first.figures[name], strict=True))
            if batches and puts:
                found.append(Gain(name, int(batches), put_secs / puts, secs / batches, waited / batches, busy))
        return found

    def before_step(self) -> None:
        """Count a step. After 200, log a warning for each pipeline that does not pay."""
        self._steps += 1
        if self._steps == _LEFT_OUT + 1 and self._meters:
            self._first = self._sums()
        if self._steps == _JUDGED_AFTER + 1:
            for gain in self.gains():
                if gain.why_not:
                    logging.warning("auto_stage(): '%s': after %d steps, %s.", gain.name, _JUDGED_AFTER, gain)
