"""A cache that another process builds again while it is opened."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns import reading

OLD, NEW = [{"x": i, "y": i} for i in range(3)], [{"x": i, "y": i} for i in range(10, 13)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    cached(OLD, tmp_path / "cache", batch_size=1)
    return tmp_path / "cache"


def opened(path: Path) -> list[Any]:
    batch = CachedSource(path, batch_size=3).batch(0)
    return [batch["x"].tolist(), batch["y"].tolist()]


def test_all_files_are_of_one_cache(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = reading.Column, list[str]()

    def replacing(folder: str, component: Any) -> Any:
        seen.append(component.path)
        if len(seen) == 2:
            cached_module.build_cache(NEW, path, version=2)
        return real(folder, component)

    cached_module: Any = importlib.import_module("staging_tf1.sources.cached")
    monkeypatch.setattr(reading, "Column", replacing)
    assert opened(path) == [[10, 11, 12]] * 2
    assert seen == ["x", "y"] * 2


def test_a_cache_that_is_moved_away_for_a_moment_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = path.with_name(".cache.replaced")
    os.rename(path, replaced)
    monkeypatch.setattr(reading.time, "sleep", lambda _: os.rename(replaced, path))
    assert opened(path) == [[0, 1, 2]] * 2


def test_a_cache_that_never_comes_back_is_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.rename(path, path.with_name(".cache.replaced"))
    waits: list[float] = []
    monkeypatch.setattr(reading.time, "sleep", waits.append)
    with pytest.raises(RecordFileError, match=r"found no cache at path '.*cache'"):
        opened(path)
    assert sum(waits) < 2


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
