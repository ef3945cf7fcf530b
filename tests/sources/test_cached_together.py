"""A cache that several use at once: builders that wait, or are killed; readers while it is replaced; its own data."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from processes import RunPython

import staging_tf1
from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached

CHILD = Path(__file__).parents[1] / "support" / "cached_child.py"
# A fork must not have threads, such as those of numpy's linear algebra.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
OLD, NEW = [{"x": i, "y": i} for i in range(3)], [{"x": i, "y": i} for i in range(10, 13)]
READ = [[[0, 1, 2]] * 2, [[10, 11, 12]] * 2]


# Builders.


def _started(*arguments: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(staging_tf1.__file__).parents[1])}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


@pytest.mark.parametrize("first_dies", [False, True])
def test_one_process_builds_and_the_others_wait_and_say_so(tmp_path: Path, first_dies: bool) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    arguments = (CHILD, "waits", tmp_path / "f" / "cache", log, pipe)
    with _started(*arguments) as builder:
        # Opening the pipe waits until the builder has it open.
        with open(pipe, "w", encoding="utf-8") as gate, _started(*arguments) as other:
            assert other.stderr is not None
            line = other.stderr.readline()
            assert re.search(rf"waiting for the cache .*: process {builder.pid} on \S+ is building it$", line), line
            if first_dies:
                builder.kill()
                builder.wait()
                gate.close()
                with open(pipe, "w", encoding="utf-8"):
                    pass
            gate.close()
            assert other.communicate()[0] == "whole\n"
        assert builder.communicate()[0] == ("" if first_dies else "whole\n")
    pids = [builder.pid, other.pid] if first_dies else [builder.pid]
    assert list(map(int, log.read_text().split())) == pids
    assert os.listdir(tmp_path / "f") == ["cache"]


@pytest.mark.parametrize("first", ["", "1"], ids=["new", "again"])
def test_a_kill_at_any_moment_leaves_a_whole_cache_or_none(first: str, tmp_path: Path, run_python: RunPython) -> None:
    words = ("at_every_operation", tmp_path / "f" / "cache", first)
    done = run_python("-W", "ignore", CHILD, *words, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["operations"] > 30 and found["seen"] == ([1, 2] if first else [2, None])


# Readers of a cache that is replaced.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    cached(OLD, tmp_path / "cache", batch_size=1)
    return tmp_path / "cache"


def as_opener(path: Path) -> list[Any]:
    return [values.tolist() for values in CachedSource(path, batch_size=3).batch(0).values()]


def as_reader(path: Path) -> list[Any]:
    return [values.tolist() for values in cached(OLD, path, batch_size=3, if_changed="error").batch(0).values()]


def as_command(path: Path) -> list[Any]:
    assert main(["cache", "show", "--verify", str(path)]) == 0
    return as_opener(path)


class Replacing:
    """Replaces a cache step by step, in the calls that an opener makes to the file system.

    `at` says before which of these calls each step is done: the old folder is renamed, the new one is renamed, and the
    old one is removed.
    """

    CALLS = ("open", "stat", "fstat", "listdir")

    def __init__(self, path: Path, new: Path, at: tuple[int, int, int]) -> None:
        old = path.with_name(".cache.replaced")
        steps = (lambda: os.rename(path, old), lambda: os.rename(new, path), lambda: shutil.rmtree(old))
        self.left = list(zip(at, steps))
        self.calls, self._busy = 0, False

    def _step(self) -> None:
        if self._busy:  # the steps call the file system, too
            return
        self._busy = True
        while self.left and self.left[0][0] <= self.calls:
            self.left.pop(0)[1]()
        self._busy = False
        self.calls += 1

    def wrap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stepping(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self._step()
                return real(*args, **kwargs)

            return call

        for name in self.CALLS:
            monkeypatch.setattr(os, name, stepping(getattr(os, name)))


@pytest.mark.parametrize("act", [as_opener, as_reader, as_command])
@pytest.mark.parametrize("gap", [0, 1, 4])
def test_a_replacement_between_any_two_calls(
    act: Callable[[Path], Any], gap: int, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new, ready = tmp_path / "old", tmp_path / "new", tmp_path / "ready"
    os.rename(path, old)
    # With the key of the old one, as if the same program had built it from data that differ in content only.
    cached(NEW, new, batch_size=1)
    first, seen = 0, []
    while True:
        for folder in (path, ready, tmp_path / ".cache.replaced"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old, path)
        shutil.copytree(new, ready)
        steps = Replacing(path, ready, (first, first + gap, first + 2 * gap))
        with monkeypatch.context() as patched:
            steps.wrap(patched)
            got = act(path)
        assert got in READ, f"replaced before call {first}"
        seen.append(READ.index(got))
        if len(steps.left) == 3:
            break
        first += 1
    assert first > 5 and set(seen) == {0, 1}


def test_a_cache_of_other_data_is_not_returned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def data() -> Iterator[Any]:
        yield from NEW

    def beaten(self: Any, path: Any, **options: Any) -> None:
        monkeypatch.undo()
        cached(NEW, path, batch_size=1, version=2)
        CachedSource.__init__(self, path, **options)

    monkeypatch.setattr(CachedSource, "__init__", beaten)
    message = r"has replaced the cache '.*cache' just now, from other data: version: 2 in the cache, none now"
    with pytest.raises(RecordFileError, match=message):
        cached(data, path, batch_size=1)


# Data that use the cache that is built from them: an error, or a warning by those that wait.

MESSAGE = (
    r"^the data of the cache '.*outer' uses this cache while it is built from them, so both would wait for ever\. Read "
    r"the original data there, or give the inner cache another path\.$"
)


def use(path: Path) -> None:
    cached([1, 2], path, batch_size=1)


def after_a_record(path: Path) -> Any:
    def data() -> Iterator[int]:
        yield 1
        use(path)

    return data


class InAnItem:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index > 50:
            use(self.path)
        return index


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", [after_a_record, InAnItem])
def test_data_that_use_their_own_cache_are_named(way: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(way(path), path, batch_size=1)
    assert not path.exists()
    # Nothing is left that the next one would wait for.
    assert cached([1, 2, 3], path, batch_size=1).num_records == 3


def test_a_source_of_the_old_cache_may_be_the_data_of_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "outer"
    old = cached([1, 2, 3], path, batch_size=1, epochs=1)
    cached(old, path, batch_size=1, version=2)
    assert CachedSource(path, batch_size=3).batch(0).tolist() == [1, 2, 3]


class Said(logging.Handler):
    """Waits for a warning."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: SimpleQueue[str] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(record.getMessage())


def test_a_thread_of_the_data_says_for_whom_it_waits(tmp_path: Path) -> None:
    path, said = tmp_path / "outer", Said()
    thread = threading.Thread(target=use, args=(path,))

    def data() -> Iterator[int]:
        thread.start()
        line = said.messages.get(timeout=60)
        waits = rf"waiting for the cache .*outer: process {os.getpid()} on .* is building it\. If its data use it, both"
        assert re.search(waits, line), line
        yield 1

    logging.getLogger("absl").addHandler(said)
    try:
        cached(data, path, batch_size=1)
        thread.join()
    finally:
        logging.getLogger("absl").removeHandler(said)
