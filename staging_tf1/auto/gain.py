"""`Gain`: whether it pays to run the input ahead of the step."""

from __future__ import annotations

from dataclasses import dataclass

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
