"""`StagingSummaryHook`: the figures of the pipelines as TensorBoard scalars, like `fraction_full` of TF1's queues."""

from __future__ import annotations

import os
import time
from typing import Any

from staging_tf1 import arguments
from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.feed.pipeline import Pipeline, pipelines_of
from staging_tf1.watch.stats import PipelineStats, stats_of

_SAVE_STEPS = 100


class StagingSummaryHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Writes the figures of each pipeline as TensorBoard scalars, every `save_steps` steps and at the end.

    The scalars of a pipeline are under `staging/<pipeline>/`. Since the last time: fraction_full (how full the steps
    found the area or queue, 0 to 1), waited_share (the share of the time that steps waited for input, 0 to 1) and
    batches_per_sec. Since the start: batches, source_secs (seconds in the source) and feeder_wait_secs (seconds in the
    put). With deterministic ops, waited_share is absent. The x axis is the global step, or the number of runs if the
    graph has no global step.

    Args:
      output_dir: folder of the event file; may be that of a MonitoredTrainingSession.
      save_steps: steps between two sets of scalars.

    Raises:
      TypeError, ValueError: an argument is invalid.

    >>> hook = StagingSummaryHook(output_dir="logs", save_steps=100)
    """

    def __init__(
        self,
        *,
        output_dir: str | os.PathLike[str] | None = None,
        save_steps: int = _SAVE_STEPS,
    ) -> None:
        caller = "StagingSummaryHook"
        if output_dir is None or (isinstance(output_dir, str) and not output_dir):
            raise ValueError(f"{caller} got no output_dir. Pass the folder that TensorBoard reads: output_dir='logs'.")
        self._folder = arguments.folder(caller, "output_dir", output_dir, tf.io.gfile.get_registered_schemes())
        self._save_steps = arguments.whole(caller, "save_steps", save_steps, 1, arguments.INT64_MAX)
        self._writer: Any = None
        self._step_tensor: Any = None
        self._pipelines: list[Pipeline] = []
        self._last: dict[str, PipelineStats] = {}
        self._last_at = 0.0
        self._runs = 0

    def begin(self) -> None:
        """See base class."""
        self._pipelines = pipelines_of(tf.get_default_graph())
        self._step_tensor = tf.train.get_global_step()
        self._writer = tf.summary.FileWriterCache.get(self._folder)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """See base class."""
        self._last, self._last_at = {}, time.perf_counter()
        self._runs = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """See base class."""
        self._runs += 1
        if self._runs % self._save_steps == 0:
            self._write(run_context.session)

    def end(self, session: Any) -> None:
        """See base class."""
        if self._runs % self._save_steps:
            self._write(session)
        self._writer.flush()

    def _write(self, session: Any) -> None:
        step = self._runs if self._step_tensor is None else int(run_unwrapped(session, self._step_tensor))
        now = time.perf_counter()
        for stats in stats_of(self._pipelines, session):
            scalars = _since(self._last.get(stats.name), stats, now - self._last_at)
            values = [
                tf.Summary.Value(tag=f"staging/{stats.name}/{name}", simple_value=value)
                for name, value in scalars.items()
            ]
            self._writer.add_summary(tf.Summary(value=values), step)
            self._last[stats.name] = stats
        self._last_at = now


def _since(last: PipelineStats | None, stats: PipelineStats, secs: float) -> dict[str, float]:
    """Return the scalars for the time between two figures, `secs` apart."""
    batches = stats.batches - (last.batches if last else 0)
    elements = stats.occupancy * stats.batches - (last.occupancy * last.batches if last else 0.0)
    waited = {}
    if stats.wait_secs is not None:
        before = (last.wait_secs if last else None) or 0.0
        waited["waited_share"] = min(1.0, (stats.wait_secs - before) / secs)
    return {
        "fraction_full": min(1.0, elements / (batches * stats.capacity)) if batches else 0.0,
        **waited,
        "batches_per_sec": batches / secs,
        "batches": float(stats.batches),
        "source_secs": stats.source_secs,
        "feeder_wait_secs": stats.feeder_wait_secs,
    }
