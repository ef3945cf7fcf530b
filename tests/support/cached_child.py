"""Programs for tests/sources/test_cached_together.py: builders that are killed, or that wait.

Run as `python cached_child.py PROGRAM ARGUMENTS...`. They do not import TensorFlow, so they start quickly and can fork.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached

RECORDS = 8
# Operations on files, in the order of a build. A kill hits the program just before one of them, or before a record.
_OPERATIONS = ("mkdir", "makedirs", "rename", "replace", "unlink", "rmdir", "fsync", "open", "close")


def make(path: str, version: int, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Build a version of the cache. `meanwhile` is called before each record."""

    def data() -> Iterator[Any]:
        for i in range(RECORDS):
            meanwhile()
            yield {"n": i + version, "text": "x" * (i % 5), "tokens": np.arange(i % 3)}

    cached(data, path, batch_size=1, version=version)


def state(path: str) -> int | None:
    """Return the version of a whole and correct cache, or None if there is none."""
    try:
        source = CachedSource(path, batch_size=RECORDS).pad()
    except RecordFileError as error:
        assert "found no cache" in str(error), error
        return None
    batch = source.batch(0)
    version = int(batch["n"][0])
    assert batch["n"].tolist() == list(range(version, RECORDS + version))
    assert batch["text"].tolist() == [b"x" * (i % 5) for i in range(RECORDS)]
    assert batch["tokens"].tolist() == [[0, 0] if i % 3 < 2 else [0, 1] for i in range(RECORDS)]
    return version


def make_and_die(path: str, version: int, number: int) -> None:
    """Build a version of the cache, and be killed before the `number`-th operation."""
    count = itertools.count()

    def step() -> None:
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            step()
            return function(*arguments, **options)

        return call

    for name in _OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
    make(path, version, step)


def is_killed(path: str, version: int, number: int) -> bool:
    """Do `make_and_die` in a fork. Return whether it was killed, and not done before."""
    child = os.fork()
    if not child:
        try:
            make_and_die(path, version, number)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def check_alone(path: str) -> None:
    """Check that nothing is left beside the cache, but the file of a lock."""
    folder, name = os.path.split(path)
    left = set(os.listdir(folder)) - {f".{name}.lock"}
    assert left == {name}, left


def at_every_operation(path: str, first: str) -> None:
    """Build version 2, over version 1 or nothing, and be killed before each operation in turn."""
    seen, notes = set(), Path(path, "notes.txt")
    for number in itertools.count():
        shutil.rmtree(path, ignore_errors=True)
        if first:
            make(path, 1)
            notes.write_text("precious")
        was_killed = is_killed(path, 2, number)
        version = state(path)
        seen.add(version)
        if not was_killed:
            break
        if version and not os.path.exists(path):
            # It was about to be replaced.
            make(path, version)
            check_alone(path)
        make(path, 2)
        check_alone(path)
        assert state(path) == 2 and (not first or notes.read_text() == "precious")
    print(json.dumps({"operations": number, "seen": sorted(seen, key=str)}))


def waits(path: str, log: str, pipe: str) -> None:
    """Build a cache whose generator waits until somebody writes to the pipe."""

    def data() -> Iterator[int]:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        yield 0
        with open(pipe, encoding="utf-8") as file:
            file.read()
        yield from range(1, 100)

    source = cached(data, path, batch_size=100)
    assert source.batch(0).tolist() == list(range(100))
    print("whole", flush=True)


if __name__ == "__main__":
    # What a killed process has written is safe in the page cache, and a busy disk takes seconds.
    os.fsync = lambda file: None
    programs = (at_every_operation, waits)
    {program.__name__: program for program in programs}[sys.argv[1]](*sys.argv[2:])
