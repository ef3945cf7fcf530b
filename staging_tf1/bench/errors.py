"""The exceptions of the benchmarks."""

from __future__ import annotations

from staging_tf1.errors import StagingError

__all__ = ["BenchError", "NotApplicable"]


class BenchError(StagingError):
    """A request names something unknown, or a benchmark cannot run."""


class NotApplicable(StagingError):
    """A system cannot feed this workload or is not installed, and is skipped. The message says why."""
