"""The benchmark suite behind `staging-tf1 bench`.

A workload is a source and a training step. A system is a way to feed a workload. A worker is a process that measures
one system on one workload. In each round, all systems take one turn.
"""

from __future__ import annotations

from staging_tf1.errors import StagingError

__all__ = ["BenchError", "NotApplicable"]


class BenchError(StagingError):
    """A request names something unknown, or a benchmark cannot run."""


class NotApplicable(StagingError):
    """A system cannot feed this workload or is not installed, and is skipped. The message says why."""
