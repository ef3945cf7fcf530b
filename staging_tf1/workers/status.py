"""`Status`: what each worker is doing, in memory that outlives it."""

from __future__ import annotations

from staging_tf1.workers.mapping import mapped

__all__ = ["IDLE", "STARTING", "Status"]

# A cache line each.
_BYTES = 64
IDLE, STARTING = -1, -2


class Status:
    """What one worker is doing: the number of its batch, or a constant. Written by the worker.

    Args:
      descriptor: a file of `Status.bytes_for` bytes.
      worker: the number of the worker.
    """

    def __init__(self, descriptor: int, worker: int) -> None:
        end = self.bytes_for(worker + 1)
        self._cell = memoryview(mapped(descriptor, end))[end - _BYTES :].cast("q")

    @staticmethod
    def bytes_for(workers: int) -> int:
        """Bytes for a number of workers."""
        return workers * _BYTES

    def starting(self) -> None:
        """Say that the worker has not begun."""
        self._cell[0] = STARTING

    def making(self, number: int | None) -> None:
        """Say which batch is being made."""
        self._cell[0] = IDLE if number is None else number

    @property
    def doing(self) -> int:
        """The number of the batch that is being made, or a constant."""
        return int(self._cell[0])
