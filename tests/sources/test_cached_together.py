"""A cache that several use at once: while it is built or replaced by others, and by the data that it is built from."""

from __future__ import annotations

import contextlib
import importlib
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

import numpy as np
import pytest
from slow import with_slow

import staging_tf1
from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns import folder

CHILD = Path(__file__).parents[1] / "support" / "cached_child.py"
OLD, NEW = [{"x": i, "y": i} for i in range(3)], [{"x": i, "y": i} for i in range(10, 13)]

# Processes that build the same cache.


def _started(*arguments: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(staging_tf1.__file__).parents[1])}
    command = [sys.executable, str(CHILD), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


@pytest.mark.parametrize("first_dies", [False, True])
def test_one_process_builds_and_the_others_wait_and_say_so(tmp_path: Path, first_dies: bool) -> None:
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    arguments = ("waits", tmp_path / "f" / "cache", log, pipe)
    with _started(*arguments) as builder:
        # Opening the pipe waits until the builder has it open.
        with open(pipe, "w", encoding="utf-8") as gate, _started(*arguments) as other:
            assert other.stderr is not None
            line = other.stderr.readline()
            assert re.search(rf"waiting for the cache .*: process {builder.pid} on .* is building it \(", line), line
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


# A cache that another process builds again while it is opened.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    cached(OLD, tmp_path / "cache", batch_size=1)
    return tmp_path / "cache"


def opened(path: Path) -> list[Any]:
    batch = CachedSource(path, batch_size=3).batch(0)
    return [batch["x"].tolist(), batch["y"].tolist()]


def test_all_files_are_of_one_cache(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = folder.Column, list[str]()

    def replacing(found: Any, component: Any) -> Any:
        seen.append(component.path)
        if len(seen) == 2:
            cached_module.build_cache(NEW, path, version=2)
        return real(found, component)

    cached_module: Any = importlib.import_module("staging_tf1.sources.cached")
    monkeypatch.setattr(folder, "Column", replacing)
    assert opened(path) == [[10, 11, 12]] * 2
    assert seen == ["x", "y"] * 2


def test_a_cache_of_other_data_is_not_returned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = importlib.import_module("staging_tf1.sources.cached")
    real = module.built

    def beaten(job: Any) -> None:
        real(job)
        monkeypatch.setattr(module, "built", real)
        cached(NEW, path, batch_size=1, version=2)

    monkeypatch.setattr(module, "built", beaten)
    message = r"has replaced the cache '.*cache' just now, from other data: version: 2 in the cache, none now\."
    with pytest.raises(RecordFileError, match=message):
        cached(OLD, path, batch_size=1)


# The steps of a replacement, between any two calls of an opener.


class Replacing:
    """Replaces a cache step by step, in the calls that an opener makes to the file system.

    `at` says before which of these calls each step is done: the new files are moved in, then the manifest, and then the
    old files are removed.
    """

    CALLS = ("open", "stat", "lstat", "fstat", "listdir")

    def __init__(self, path: Path, at: tuple[int, int, int]) -> None:
        building = path.with_name(".cache.building")

        def move(pattern: str) -> None:
            for file in building.glob(pattern):
                file.rename(path / file.name)

        def clean() -> None:
            with contextlib.suppress(FileNotFoundError):  # cached() has done it
                folder.remove_replaced(str(path))

        self.left = [(at[0], lambda: move("*.npy")), (at[1], lambda: move("manifest.json")), (at[2], clean)]
        self.calls = 0
        self._busy = False

    def step(self) -> None:
        if self._busy:  # the steps call the file system, too
            return
        self._busy = True
        while self.left and self.left[0][0] <= self.calls:
            self.left.pop(0)[1]()
        self._busy = False
        self.calls += 1

    def wrap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self._stepping(getattr(os, name)))

    def _stepping(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return real(*args, **kwargs)

        return call


def as_opener(path: Path) -> list[Any]:
    return opened(path)


def as_reader(path: Path) -> list[Any]:
    return [batch.tolist() for batch in cached(OLD, path, batch_size=3, if_changed="error").batch(0).values()]


def as_command(path: Path) -> list[Any]:
    assert main(["cache", "show", "--verify", str(path)]) == 0
    return opened(path)


@pytest.mark.parametrize("act", [as_opener, as_reader, as_command])
@pytest.mark.parametrize("gap", [0, 1, 2])
def test_a_replacement_between_any_two_calls(
    act: Callable[[Path], Any], gap: int, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = [[[0, 1, 2]] * 2, [[10, 11, 12]] * 2]
    old, new = tmp_path / "old", tmp_path / "new"
    os.rename(path, old)
    # With the key of the old one, as if the same program had built it from data that differ in content only.
    cached(OLD, new, batch_size=1, version=1)
    cached(NEW, new, batch_size=1)
    first, seen = 0, []
    while True:
        for folder_ in (path, path.with_name(".cache.building")):
            shutil.rmtree(folder_, ignore_errors=True)
        shutil.copytree(old, path)
        shutil.copytree(new, path.with_name(".cache.building"))
        steps = Replacing(path, (first, first + gap, first + 2 * gap))
        with monkeypatch.context() as patched:
            steps.wrap(patched)
            got = act(path)
        assert got in expected, f"replaced before call {first}"
        seen.append(expected.index(got))
        if len(steps.left) == 3:
            break
        first += 1
    assert first > 5 and set(seen) == {0, 1}


def test_thousands_of_opens_while_a_cache_is_built_again_and_again(path: Path) -> None:
    stop, errors, built = threading.Event(), [], [0]

    def replace() -> None:
        try:
            while not stop.is_set():
                built[0] += 1
                cached((OLD, NEW)[built[0] % 2], path, batch_size=1, version=built[0])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        got = []
        while len(got) < (5000 if with_slow() else 1000) or (built[0] <= 10 and not errors):
            got.append(opened(path))
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert all(each in ([[0, 1, 2]] * 2, [[10, 11, 12]] * 2) for each in got)


def test_a_cache_that_is_built_again_stays_readable_for_those_that_have_it_open(tmp_path: Path) -> None:
    old = cached(np.arange(5), tmp_path / "cache", batch_size=5)
    cached(np.arange(100, 200), tmp_path / "cache", batch_size=5)
    assert old.batch(0).tolist() == [0, 1, 2, 3, 4]
    assert CachedSource(tmp_path / "cache", batch_size=5).batch(0).tolist() == [100, 101, 102, 103, 104]


# Data that use the cache that is built from them: an error, or a warning by those that wait.

MESSAGE = (
    r"^the data of the cache '.*outer' uses this cache while it is built from them, so both would wait for ever\. Read "
    r"the original data there, or give the inner cache another path\.$"
)
WAITING = (
    r"waiting for the cache .*outer: process {} on .* is building it \(started\)\. If its data use this cache, both"
)
BUILDS = (
    "import sys; from staging_tf1 import sources; print(sources.cached([1, 2], sys.argv[1], batch_size=1).num_records)"
)


def use(path: Path) -> None:
    cached([1, 2], path, batch_size=1)


def in_the_generator(path: Path) -> Iterator[int]:
    use(path)
    yield 1


def after_a_record(path: Path) -> Iterator[int]:
    yield 1
    use(path)


def through_another_cache(path: Path) -> Iterator[int]:
    def inner() -> Iterator[int]:
        use(path)
        yield 1

    cached(inner, path.with_name("inner"), batch_size=1)
    yield 1


def through_a_link(path: Path) -> Iterator[int]:
    link = path.with_name("link")
    link.symlink_to(path.parent)
    use(link / path.name)
    yield 1


class InAnItem:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index > 50:
            use(self.path)
        return index


WAYS: list[Callable[[Path], Iterator[int]]] = [in_the_generator, after_a_record, through_another_cache, through_a_link]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS)
def test_data_that_use_their_own_cache_are_named(way: Callable[[Path], Iterator[int]], tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(lambda: way(path), path, batch_size=1)
    assert not path.exists()
    # Nothing is left that the next one would wait for.
    assert cached([1, 2, 3], path, batch_size=1).num_records == 3


def test_items_that_use_their_own_cache_are_named(tmp_path: Path) -> None:
    path = tmp_path / "outer"
    with pytest.raises(RecordFileError, match=MESSAGE):
        cached(InAnItem(path), path, batch_size=1)


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
    path, got, said = tmp_path / "outer", list[int](), Said()
    thread = threading.Thread(target=lambda: got.append(cached([1, 2], path, batch_size=1).num_records))

    def data() -> Iterator[int]:
        thread.start()
        assert re.match(WAITING.format(os.getpid()), said.messages.get(timeout=60))
        yield 1

    logging.getLogger("absl").addHandler(said)
    try:
        cached(data, path, batch_size=1)
        thread.join()
    finally:
        logging.getLogger("absl").removeHandler(said)
    assert got == [2]


def test_a_process_of_the_data_says_for_whom_it_waits(tmp_path: Path) -> None:
    path, children = tmp_path / "outer", list[subprocess.Popen[str]]()

    def data() -> Iterator[int]:
        words = [sys.executable, "-c", BUILDS, str(path)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stderr is not None
        assert re.search(WAITING.format(os.getpid()), child.stderr.readline())
        yield 1

    cached(data, path, batch_size=1)
    assert children[0].communicate()[0] == "2\n"
