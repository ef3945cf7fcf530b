"""The curve of a training run: loss, accuracy, examples per second and waiting, step by step, and a plot of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import staging_tf1 as staging

__all__ = ["Curve", "Point", "draw"]

# More points than pixels would only cost time: each one reads the figures of the session.
_MOST_POINTS = 200


@dataclass(frozen=True)
class Point:
    """The means of the steps since the point before."""

    # The last of these steps, counted from 1.
    step: int
    loss: float
    # The fraction of the examples that were classified correctly before the step changed the model, from 0 to 1.
    accuracy: float
    examples_per_sec: float
    # The share of the time that the steps waited for input, from 0 to 1; None with deterministic ops.
    waited_share: float | None


class Curve:
    """Collects the points.

    Args:
      num_steps: how many steps there will be, about.
      stats: returns the figures of the pipelines.
    """

    def __init__(self, num_steps: int, stats: Callable[[], Sequence[staging.PipelineStats]]) -> None:
        self.points: list[Point] = []
        self._every = max(1, num_steps // _MOST_POINTS)
        self._stats = stats
        self._step = self._steps = self._examples = self._correct = 0
        self._loss = 0.0
        self._at, self._waited = time.perf_counter(), 0.0

    def add(self, examples: int, loss: float, correct: int) -> None:
        """Add a step: its number of examples, their mean loss, and how many of them were classified correctly."""
        self._step += 1
        self._steps += 1
        self._examples += examples
        self._correct += correct
        self._loss += loss
        if self._step % self._every == 0:
            self._close()

    def _close(self) -> None:
        now, waits = time.perf_counter(), [stats.wait_secs for stats in self._stats()]
        secs = now - self._at
        waited = sum(secs or 0.0 for secs in waits)
        self.points.append(
            Point(
                step=self._step,
                loss=self._loss / self._steps,
                accuracy=self._correct / self._examples,
                examples_per_sec=self._examples / secs,
                waited_share=None if None in waits else min(1.0, max(0.0, (waited - self._waited) / secs)),
            )
        )
        self._steps = self._examples = self._correct = 0
        self._loss, self._at, self._waited = 0.0, now, waited


def draw(points: Sequence[Point], title: str, path: str) -> None:
    """Write a picture of the points, with one panel for each known figure. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    waited = [100 * point.waited_share for point in points if point.waited_share is not None]
    panels = [
        ("loss", [point.loss for point in points]),
        ("accuracy", [point.accuracy for point in points]),
        ("examples per second", [point.examples_per_sec for point in points]),
        *([("waiting for input, %", waited)] if len(waited) == len(points) else []),
    ]
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(8, 9), sharex=True)
    for axis, (name, values) in zip(axes, panels, strict=True):
        axis.plot([point.step for point in points], values)
        axis.set(ylabel=name, ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].set_title(title)
    axes[-1].set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
