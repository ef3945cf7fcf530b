"""What `datasets.py --part cache` measures: building a cache, and reading it."""

from __future__ import annotations

import ctypes
import gc
import io
import itertools
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 128
SHARDS = 64


def measure(rounds: int, quick: bool) -> dict[str, Any]:
    """Print the three groups of figures, and return them."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "seconds": speeds(Path(folder), rounds, 300 if quick else 20_000),
            "memory": memory(Path(folder), (300, 600) if quick else (10_000, 1_000_000)),
            "shards": shards(Path(folder), 2 if quick else 40),
        }


# Speed: building against iterating, and a later epoch against those of others.


def speeds(folder: Path, rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds for an epoch of each, one value per round, in turn in one process."""
    from common import rotated  # it imports TensorFlow, which the processes that measure memory do without

    dataset = pipeline(count)
    epochs = later_epochs(folder, dataset, count)
    steps: dict[str, Callable[[int], Any]] = {
        "iterating once": lambda turn: consume(dataset.batch(BATCH).prefetch(2)),
        "building the cache": lambda turn: build(folder / f"built {turn}", dataset),
        **epochs,
    }
    found: dict[str, list[float]] = {name: [] for name in steps}
    work: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name in rotated(list(steps), turn):
            start, began = time.perf_counter(), time.process_time()
            steps[name](turn)
            if turn:  # the first turn writes the files of the others, and warms up
                found[name].append(time.perf_counter() - start)
                work[name].append(time.process_time() - began)
        shutil.rmtree(folder / f"built {turn}")
    told = {
        name: f"{statistics.median(secs):.2f} s ({min(secs):.2f} to {max(secs):.2f})" for name, secs in found.items()
    }
    for name, text in told.items():
        print(f"{name}: {text} for {count} records")
    _print_ratio(found, "building the cache", "iterating once")
    _print_ratio(work, "building the cache", "iterating once", "CPU time")
    for name in epochs:
        if name != "cached, shuffled":
            _print_ratio(found, "cached, shuffled", name)
    return found


def _print_ratio(found: dict[str, list[float]], over: str, under: str, what: str = "time") -> None:
    from common import ratio

    middle, least, most = ratio(found, over, under)
    print(f"{over} over {under}: {middle:.3f} ({least:.3f} to {most:.3f}) of the {what}")


def pipeline(count: int) -> Any:
    """A dataset that decodes JPEG images and resizes them to 3 KB."""
    import tensorflow as tf
    from PIL import Image

    random = np.random.default_rng(0)
    encoded = []
    for _ in range(100):
        smooth = Image.fromarray(random.integers(0, 255, (16, 16, 3), dtype=np.uint8)).resize((128, 128))
        buffer = io.BytesIO()
        smooth.save(buffer, "jpeg")
        encoded.append(buffer.getvalue())
    files = tf.constant(encoded)

    def load(number: Any) -> Any:
        image = tf.image.decode_jpeg(files[number % len(encoded)], channels=3)
        return {"image": tf.cast(tf.image.resize(image, [32, 32]), tf.uint8), "label": number}

    return tf.data.Dataset.range(count).map(load, num_parallel_calls=2)


def consume(dataset: Any) -> None:
    """Read a dataset to its end, as arrays."""
    for batch in dataset.as_numpy_iterator():
        assert len(batch["label"])


def build(path: Path, dataset: Any) -> Any:
    """Build a cache of a dataset."""
    from staging_tf1.sources import cached

    return cached(dataset, path, batch_size=BATCH, shuffle=True, seed=1, progress=False)


def later_epochs(folder: Path, dataset: Any, count: int) -> dict[str, Callable[[int], Any]]:
    """Functions that read a later epoch, in batches of arrays: ours, and those of others."""
    source = build(folder / "cache", dataset)
    per_epoch = source.batches_per_epoch
    file, taken = dataset.cache(str(folder / "file")), dataset.snapshot(str(folder / "snapshot"))
    epochs: dict[str, Callable[[int], Any]] = {
        "cached, shuffled": lambda turn: [source.batch(turn * per_epoch + k)["label"] for k in range(per_epoch)],
        "Dataset.cache(file), in order": lambda turn: consume(file.batch(BATCH).prefetch(2)),
        "snapshot, in order": lambda turn: consume(taken.batch(BATCH).prefetch(2)),
    }
    try:
        import lmdb
    except ModuleNotFoundError:
        print("LMDB, random: not measured, lmdb is not installed")
        return epochs
    environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 32)
    with environment.begin(write=True) as write:
        for k in itertools.count():
            batch = source.gather(np.arange(k * BATCH, min(count, (k + 1) * BATCH)))
            for label, image in zip(batch["label"].tolist(), batch["image"]):
                write.put(label.to_bytes(8, "big"), label.to_bytes(8, "little") + image.tobytes())
            if (k + 1) * BATCH >= count:
                break
    return {**epochs, "LMDB, random": lambda turn: _read_lmdb(environment, count, turn)}


def _read_lmdb(environment: Any, count: int, turn: int) -> None:
    order = np.random.default_rng(turn).permutation(count)
    with environment.begin(buffers=True) as read:
        for start in range(0, count, BATCH):
            numbers = order[start : start + BATCH].tolist()
            images = np.empty((len(numbers), 32, 32, 3), np.uint8)
            labels = np.empty(len(numbers), np.int64)
            for row, number in enumerate(numbers):
                value = read.get(number.to_bytes(8, "big"))
                labels[row] = int.from_bytes(value[:8], "little")
                images[row] = np.frombuffer(value, np.uint8, offset=8).reshape(32, 32, 3)


# Memory, in a process for each number of records.


def memory(folder: Path, counts: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """The peaks of memory of a process that builds a cache and reads it, shuffled, in MiB."""
    found = {}
    for count in counts:
        words = [sys.executable, __file__, str(folder / f"memory {count}"), str(count)]
        found[str(count)] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        told = ", ".join(f"{name} {value:.1f}" for name, value in found[str(count)].items())
        print(f"memory with {count} records, in MiB: {told}")
    return found


def _memory_of(path: str, count: int) -> dict[str, float]:
    from staging_tf1.sources import cached

    peaks = {"imported": _own_mib()}

    def note(when: str) -> None:
        peaks[when] = max(peaks.get(when, 0), _own_mib())

    def batches() -> Iterator[Any]:
        for start in range(0, count, 100):
            note("building")
            yield {"x": np.full((100, 32), start, np.float32), "text": [b"x" * (start % 9)] * 100}

    source = cached(batches, path, batch_size=BATCH, batched=True, shuffle=True, seed=1, epochs=1, progress=False)
    for _ in source.batches():
        note("reading")
    # Pages of the files count as the process's while they are mapped, but the system takes them back when it needs to.
    return {**peaks, "mapped pages of files": _status_mib("RssFile")}


def _own_mib() -> float:
    return _status_mib("RssAnon")


def _status_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


# Bytes that a shard reads.


def shards(folder: Path, per_shard: int) -> dict[str, float]:
    """The bytes that shard 3 of 64 brings into the page cache, relative to 1/64 of the file."""
    from staging_tf1.sources import CachedSource, cached

    found = {}
    for kib in (3, 16, 64):
        path = folder / f"shards {kib}"
        rows = np.zeros((SHARDS * per_shard, kib << 10), np.uint8)
        cached(rows, path, batch_size=1, progress=False)
        (file,) = path.glob("*.npy")
        source = CachedSource(path, batch_size=8, epochs=1, shuffle=True, seed=1, shard=(3, SHARDS))
        del rows
        gc.collect()
        _forget(file)
        copied = sum(batch.nbytes for batch in source.batches())
        resident = _resident(file)
        found[f"{kib} KiB"] = resident / (file.stat().st_size / SHARDS)
        print(
            f"records of {kib} KiB: a shard of {SHARDS} copies {copied * SHARDS / (file.stat().st_size - 4096):.3f} "
            f"and reads {found[f'{kib} KiB']:.3f} of 1/{SHARDS} of the bytes"
        )
        del source
    return found


def _forget(file: Path) -> None:
    """Drop a file from the page cache."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resident(file: Path) -> int:
    """Count the bytes of a file in the page cache, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = file.stat().st_size
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        pages = -(-size // mmap.PAGESIZE)
        states = (ctypes.c_ubyte * pages)()
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), states)
        del start
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(state & 1 for state in states) * mmap.PAGESIZE


if __name__ == "__main__":
    print(json.dumps(_memory_of(sys.argv[1], int(sys.argv[2]))))
