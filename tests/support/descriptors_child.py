"""Uses sources while the process may open few files: `python descriptors_child.py FOLDER`. Prints errors as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.ma  # imported on demand, which would open its files

from staging_tf1 import sources
from staging_tf1.sources.files.tfrecord_write import write_tfrecords

WIDE = [{f"c{number:03}": number for number in range(600)}] * 3


@contextlib.contextmanager
def at_most(more: int) -> Iterator[None]:
    """Let this process open `more` files besides those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = []
    while (filler := os.dup(0)) < highest:
        fillers.append(filler)
    os.close(filler)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def wide(path: Path) -> int:
    """A cache of 600 components under the usual limit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    before = len(os.listdir("/proc/self/fd"))
    source = sources.cached(WIDE, path, batch_size=3)
    assert source.batch(0)["c599"].tolist() == [599] * 3
    return len(os.listdir("/proc/self/fd")) - before


def errors(folder: Path) -> dict[str, str]:
    """What each source says when the process may open no file more."""
    records, texts = folder / "r.tfrecord", folder / "texts"
    files = write_tfrecords({"x": np.arange(5)}, str(records), shards=2, progress=False)
    sources.cached([{"x": "a", "y": 1}] * 3, texts, batch_size=1)
    parse: Any = {"parse_fn": lambda record: np.frombuffer(record, np.uint8).sum(), "batch_size": 1}
    unread = sources.TFRecordSource(files, **parse)
    ways: dict[str, Callable[[], Any]] = {
        "open a cache": lambda: sources.CachedSource(texts, batch_size=1),
        "use a cache": lambda: sources.cached([{"x": "a", "y": 1}] * 3, texts, batch_size=1),
        "build a cache": lambda: sources.cached([1, 2], folder / "new", batch_size=1),
        "open record files": lambda: sources.TFRecordSource(files, **parse),
        # The first file was opened for the spec.
        "read record files": lambda: unread.batch(4),
    }
    found = {}
    for name, way in ways.items():
        with at_most(1):
            try:
                way()
                found[name] = "no error"
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
    with at_most(4):
        # Some of the files of this cache can be opened.
        try:
            sources.cached(WIDE, folder / "wide", batch_size=3)
        except Exception as error:
            found["build a wide cache"] = f"{type(error).__name__}: {error}"
    sources.cached(WIDE, folder / "wide", batch_size=3)
    with at_most(9):
        try:
            sources.CachedSource(folder / "wide", batch_size=3)
        except Exception as error:
            found["open a wide cache"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    where = Path(sys.argv[1])
    print(json.dumps({"errors": errors(where), "descriptors": wide(where / "600")}))
