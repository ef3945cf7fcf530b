"""`GainWatch`: measures in a session whether `auto_stage()` pays, and says so if it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from absl import logging

from staging_tf1._tf import run_unwrapped
from staging_tf1.auto.meaning import Meaning
from staging_tf1.cores import usable_cores
from staging_tf1.watch.stats import PipelineStats

# The first steps also make the kernels.
_LEFT_OUT = 5
# Enough for a mean, and early enough to stop a long run.
_JUDGED_AFTER = 200
# Below this share of a step, the input does not matter.
_LITTLE = 0.05
# From this share on, there is no core left that could compute the input while a step runs.
_BUSY = 0.9


@dataclass(frozen=True)
class Gain:
    """What was measured in one session.

    Attributes:
      name: of the pipeline.
      batches: how many steps took a batch.
      put_secs: how long the computation of a batch takes.
      step_secs: how long a step takes, from one to the next.
      wait_secs: the part of it in which a step waits for its batch.
      busy: the share of the cores that the process used, from 0 to 1.

    >>> print(Gain("auto_stage", 500, put_secs=0.02, step_secs=0.025, wait_secs=0.002, busy=0.4))
    a batch takes 20.0 ms, a step 25.0 ms, 2.0 ms of which it waits. Unstaged it would take at most about 43.0 ms
    """

    name: str
    batches: int
    put_secs: float
    step_secs: float
    wait_secs: float
    busy: float

    @property
    def unstaged_secs(self) -> float:
        """How long a step would take without staging, unless the cores are the bottleneck."""
        return self.put_secs + self.step_secs - min(self.wait_secs, self.step_secs)

    @property
    def why_not(self) -> str:
        """Why staging does not pay; empty if it does."""
        if self.put_secs < _LITTLE * self.step_secs:
            return "the input takes little of a step"
        if self.busy > _BUSY:
            return (
                f"the process uses {100 * self.busy:.0f} % of the cores, so what runs ahead slows down the step by "
                f"about as much as it saves"
            )
        if self.unstaged_secs < (1 + _LITTLE) * self.step_secs:
            return "a step still waits for nearly all of the input"
        return ""

    def __str__(self) -> str:
        put, step, wait = (1e3 * secs for secs in (self.put_secs, self.step_secs, self.wait_secs))
        times = f"a batch takes {put:.1f} ms, a step {step:.1f} ms, {wait:.1f} ms of which it waits."
        if self.why_not:
            return f"{times} Staging does not pay: {self.why_not}"
        return f"{times} Unstaged it would take at most about {1e3 * self.unstaged_secs:.1f} ms"


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
        self._meters = {group.sink.name: group.meter for group in meaning.groups if group.meter is not None}
        self._steps = 0
        self._first: _Sums | None = None

    def _sums(self) -> _Sums:
        at, cpu = time.perf_counter(), time.process_time()
        puts = run_unwrapped(self._session, {name: meter.value for name, meter in self._meters.items()})
        figures = {
            area.name: (area.batches, area.wait_secs or 0.0, *map(float, puts[area.name]))
            for area in self._stats()
            if area.name in puts
        }
        return _Sums(at, cpu, figures)

    def gains(self) -> list[Gain]:
        """Return what was measured; nothing in the first steps, or where TensorFlow refuses to read the clock."""
        if self._first is None:
            return []
        now = self._sums()
        secs = now.at - self._first.at
        busy = (now.cpu - self._first.cpu) / (secs * usable_cores())
        gains = []
        for name, figures in now.figures.items():
            batches, waited, puts, put_secs = (a - b for a, b in zip(figures, self._first.figures[name], strict=True))
            if batches and puts:
                gains.append(Gain(name, int(batches), put_secs / puts, secs / batches, waited / batches, busy))
        return gains

    def before_step(self) -> None:
        """Count a step. After 200, log a warning for each pipeline that does not pay."""
        self._steps += 1
        if self._steps == _LEFT_OUT + 1 and self._meters:
            self._first = self._sums()
        if self._steps == _JUDGED_AFTER + 1:
            for gain in self.gains():
                if gain.why_not:
                    logging.warning("auto_stage(): '%s': after %d steps, %s.", gain.name, _JUDGED_AFTER, gain)
