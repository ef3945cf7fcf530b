"""What reading takes: memory that is flat in the number of records, and a shard's part of the bytes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from staging_tf1.sources import ArraySource, MapSource, TFRecordSource, write_tfrecords

BATCH, STEPS, SHARDS = 256, 200, 64
# Where Linux counts the bytes that this process reads.
IO = "/proc/self/io"
# Reads some shuffled batches in a process of its own. Prints how far its memory rises above that after the imports, in
# KiB. The peak of getrusage would be that of the process that starts it, which has loaded TensorFlow.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[3])
from datasets_reading import kib_of, read_some
before = kib_of("VmRSS")
read_some(int(sys.argv[1]), int(sys.argv[2]))
print(kib_of("VmHWM") - before)
"""


class Numbers:
    """A map-style dataset of any length, whose records of 1 KB take no memory before they are read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray[Any, Any]:
        return np.full(128, number)


def measure(*, quick: bool) -> dict[str, Any]:
    """Print and return both figures."""
    steps, records = (5, 6400) if quick else (STEPS, 64_000)
    counts = (10_000, 1_000_000)
    memory = {str(count): peak_kib(count, steps) for count in counts} if os.path.exists("/proc/self/status") else {}
    for count, kib in memory.items():
        print(f"reading a MapSource of {count} records takes {kib} KiB")
    parts = bytes_of_shards(records)
    for name, shares in parts.items():
        least, most = min(shares) * SHARDS, max(shares) * SHARDS
        print(f"{name}: each of {SHARDS} shards reads {least:.3f} to {most:.3f} times 1/{SHARDS} of the bytes")
    return {"memory": memory, "shards": parts}


def read_some(count: int, steps: int) -> None:
    """Read shuffled batches of a dataset of `count` records."""
    source = MapSource(Numbers(count), batch_size=BATCH, shuffle=True, seed=1)
    for number in range(steps):
        source.batch(number)


def kib_of(figure: str) -> int:
    """A figure of the memory of this process, in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(figure))


def peak_kib(count: int, steps: int) -> int:
    """How far reading raises the memory of a process at its peak, in KiB."""
    command = [sys.executable, "-c", PROGRAM, str(count), str(steps), str(Path(__file__).parent)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)


def bytes_of_shards(records: int) -> dict[str, list[float]]:
    """What each shard reads in one epoch, as parts of the bytes of all records."""
    rows = np.zeros((records, 256), np.uint8)
    options: dict[str, Any] = dict(batch_size=BATCH, shuffle=True, seed=1, epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.tfrecord")
        write_tfrecords({"x": rows}, path)
        array = CountedArray(rows, **options)
        file = TFRecordSource(path, access="pread", **options)
        found = {"ArraySource": [part / rows.nbytes for part in map(array.bytes_of_shard, range(SHARDS))]}
        if os.path.exists(IO):
            size = os.path.getsize(path)
            found["TFRecordSource"] = [system_bytes(file.shard(index, SHARDS)) / size for index in range(SHARDS)]
    return found


class CountedArray(ArraySource):
    """Counts the bytes of the rows that are taken out of the array."""

    taken = 0

    def gather(self, records: Any) -> Any:
        """See base class."""
        batch = super().gather(records)
        self.taken += batch.nbytes
        return batch

    def bytes_of_shard(self, index: int) -> int:
        """The bytes that one epoch of a shard takes."""
        shard = self.shard(index, SHARDS)
        for _ in shard.batches():
            pass
        return shard.taken


def system_bytes(source: TFRecordSource) -> int:
    """The bytes that the process reads with system calls in one epoch."""
    before = _read_so_far()
    for _ in source.batches():
        pass
    return _read_so_far() - before


def _read_so_far() -> int:
    return int(Path(IO).read_text(encoding="ascii").split()[1])  # rchar
