"""The settings of the training program."""

from __future__ import annotations

from dataclasses import dataclass

from staging_tf1.errors import StagingError

__all__ = ["LogdirError", "Settings", "WorkflowError"]


class LogdirError(StagingError, ValueError):
    """The folder for checkpoints cannot be used."""


class WorkflowError(StagingError, ValueError):
    """The workflow does not support the cluster."""


@dataclass(frozen=True)
class Settings:
    """The settings of one training run."""

    workflow: str = "staged"
    # Images per batch of each worker, and passes over all images.
    batch_size: int = 32
    epochs: int = 30
    # Feed threads. Lockstep has none and requires 1.
    threads: int = 1
    # Worker processes, instead of feed threads; 0 uses threads.
    processes: int = 0
    # The capacity of the staging area, in batches.
    capacity: int = 2
    # The folder for checkpoints and summaries; None writes none.
    logdir: str | None = None
    seed: int = 0
    # The file for a timeline of the run; None writes none.
    trace: str | None = None
    # The file for a picture of the run; None draws none.
    plot: str | None = None

    def check(self) -> None:
        """Raise ValueError, which names the flags of `staging-tf1 train`, for settings that contradict each other."""
        if self.workflow == "lockstep" and self.threads > 1:
            raise ValueError(f"--workflow lockstep has no feed threads: got --threads {self.threads}, remove it")
        if self.workflow == "lockstep" and self.processes:
            raise ValueError(
                f"--workflow lockstep reads in the step itself: got --processes {self.processes}, remove it"
            )
        if self.processes and self.threads > 1:
            raise ValueError(
                f"worker processes take the place of feed threads: got --processes {self.processes} and "
                f"--threads {self.threads}, remove one"
            )
        if self.workflow == "classic" and self.capacity < 2:
            raise ValueError(
                f"--workflow classic puts one batch while it takes another: got --capacity {self.capacity}, "
                f"expected at least 2"
            )
