"""A cache that another process builds again while it is opened."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow import with_slow

from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns import folder

OLD, NEW = [{"x": i, "y": i} for i in range(3)], [{"x": i, "y": i} for i in range(10, 13)]


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
