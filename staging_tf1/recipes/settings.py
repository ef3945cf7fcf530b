"""What the user of the training program may choose."""

from __future__ import annotations

from dataclasses import dataclass

from staging_tf1.errors import StagingError

__all__ = ["LogdirError", "Settings", "TraceFileError"]


class LogdirError(StagingError, ValueError):
    """The folder for checkpoints cannot be used."""


class TraceFileError(StagingError, ValueError):
    """The file for the timeline cannot be written."""


@dataclass(frozen=True)
class Settings:
    """How to train."""

    workflow: str = "staged"
    # Images in a batch, and how often to go through all of them.
    batch_size: int = 32
    epochs: int = 30
    # Feed threads. Lockstep has none: 1 stands for the training loop's own thread.
    threads: int = 1
    # Batches that the staging area has room for.
    capacity: int = 2
    # Where checkpoints and summaries go; nowhere if None.
    logdir: str | None = None
    seed: int = 0
    # The file that a timeline of the run is written to; none if None.
    trace: str | None = None

    def check(self) -> None:
        """Refuses what cannot go together.

        Raises:
          ValueError: the message speaks of the flags of `staging-tf1 train`.
        """
        if self.workflow == "lockstep" and self.threads > 1:
            raise ValueError(f"--workflow lockstep has no feed threads: got --threads {self.threads}, leave it out")
        if self.workflow == "classic" and self.capacity < 2:
            raise ValueError(
                f"--workflow classic puts one batch while it takes another: got --capacity {self.capacity}, "
                f"wanted at least 2"
            )
