"""Sources in a process that may open few files."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.ma  # imported on demand, which would open its files
import pytest

from staging_tf1 import sources
from staging_tf1.errors import RecordFileError

WIDE = [{f"c{number:03}": number for number in range(600)}] * 3
TEXTS = [{"x": "a", "y": 1}] * 3
PARSED: dict[str, Any] = {"parse_fn": lambda record: np.frombuffer(record, np.uint8).sum(), "batch_size": 1}


@contextlib.contextmanager
def at_most(more: int) -> Iterator[None]:
    """Let this process open `more` files besides those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = []
    while (filler := os.dup(1)) < highest:
        fillers.append(filler)
    os.close(filler)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def test_too_many_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy disk takes seconds.
    monkeypatch.setattr(os, "fsync", lambda file: None)
    files = sources.write_tfrecords({"x": np.arange(5)}, tmp_path / "r.tfrecord", shards=2)
    sources.cached(TEXTS, tmp_path / "texts", batch_size=1)
    before = len(os.listdir("/proc/self/fd"))
    wide = sources.cached(WIDE, tmp_path / "open", batch_size=3)
    assert wide.batch(0)["c599"].tolist() == [599] * 3
    assert len(os.listdir("/proc/self/fd")) - before == 600, "one for each file, which stays open"
    unread = sources.TFRecordSource(files, **PARSED)
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "open a cache": (1, lambda: sources.CachedSource(tmp_path / "texts", batch_size=1)),
        "use a cache": (1, lambda: sources.cached(TEXTS, tmp_path / "texts", batch_size=1)),
        "build a cache": (1, lambda: sources.cached([1, 2], tmp_path / "new", batch_size=1)),
        "open record files": (1, lambda: sources.TFRecordSource(files, **PARSED)),
        # The first file was opened for the spec.
        "read record files": (1, lambda: unread.batch(4)),
        # Some of the files of these can be opened.
        "build a wide cache": (4, lambda: sources.cached(WIDE, tmp_path / "wide", batch_size=3)),
        "open a wide cache": (9, lambda: sources.CachedSource(tmp_path / "open", batch_size=3)),
    }
    for name, (more, way) in ways.items():
        with at_most(more), pytest.raises(RecordFileError) as caught:
            way()
        error = str(caught.value)
        assert "Too many open files" in error, f"{name}: {error}"
        assert "Raise the limit of open files of this process: ulimit -n" in error, f"{name}: {error}"
        for wrong in ("Remove the cache", "MiB are free", "local disk", "read access"):
            assert wrong not in error, f"{name}: {error}"
