"""`Gate`: permits for the steps of another process."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """A semaphore that is a named pipe: another process opens it by its path, and a kill breaks nothing.

    Pickles as its path. The permits last as long as a process has it open.
    """

    def __init__(self, path: Path, permits: int) -> None:
        os.mkfifo(path)
        self.__setstate__(str(path))
        self.release(permits)

    def __getstate__(self) -> str:
        return self._path

    def __setstate__(self, path: str) -> None:
        self._path = path
        # For both, because opening one end only waits for the other.
        self._pipe = os.open(path, os.O_RDWR)

    def acquire(self) -> None:
        """Wait for a permit and take it."""
        os.read(self._pipe, 1)

    def release(self, permits: int = 1) -> None:
        """Give so many permits."""
        os.write(self._pipe, bytes(permits))

    def close(self) -> None:
        """Close this process's end."""
        os.close(self._pipe)
