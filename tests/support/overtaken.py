"""A source whose bad batches overtake the batches before them. Worker processes import it without TensorFlow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from staging_tf1.sources import RecordSource
from staging_tf1.spec import ArraySpec

BATCHES = 12
LIMIT_SECS = 60.0


class Overtaken(RecordSource):
    """Batch `bad` fails. The batch before it waits until that has happened, if there is somebody to do so.

    A file tells it, because the source may be sent to a process.

    Args:
      bad: the numbers of bad batches.
      folder: where a file tells that one has failed.
      raised: makes what is raised; None returns a batch of another dtype.
      waits: whether another thread makes the bad batch. Two batches may go to the same process.
    """

    def __init__(self, bad: tuple[int, ...], folder: Path, raised: Any, waits: bool) -> None:
        self._bad, self._folder, self._raised, self._waits = bad, folder, raised, waits
        super().__init__(BATCHES, batch_size=1, epochs=1)

    def record_spec(self, batch_dim: int | None) -> Any:
        return ArraySpec((batch_dim,), np.int64)

    def gather(self, records: Any) -> Any:
        number = records.start if isinstance(records, slice) else int(records[0])
        told = self._folder / str(number + 1)
        until = time.monotonic() + LIMIT_SECS
        while self._waits and number + 1 in self._bad and not told.exists():
            assert time.monotonic() < until, "nobody makes the batch after this one"
            time.sleep(0.001)
        if number in self._bad:
            (self._folder / str(number)).touch()
            if self._raised is None:
                return np.array([number], np.float32)
            raise self._raised(f"record {number} is bad")
        return np.array([number])
