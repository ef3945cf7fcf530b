"""What the benchmarks raise themselves."""

from __future__ import annotations

from staging_tf1.errors import StagingError

__all__ = ["BenchError", "NotApplicable"]


class BenchError(StagingError):
    """A benchmark was asked for what there is not, or cannot be run."""


class NotApplicable(StagingError):
    """A system cannot feed this workload, or is not installed; the message says why. It is skipped."""
