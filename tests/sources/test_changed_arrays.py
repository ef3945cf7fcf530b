"""Arrays that are resized, and mapped files that are cut or replaced, while a source reads them: an error says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import pools

from staging_tf1.errors import RecordFileError, SourceError, StagingError
from staging_tf1.sources import ArraySource, MapSource, concatenate

COUNT = 4096


def stored(path: Path, first: int = 0) -> Any:
    """A file, written beside its path and moved there, and mapped."""
    np.save(path.with_suffix(".new.npy"), np.arange(first, first + COUNT))
    os.replace(path.with_suffix(".new.npy"), path)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("count", [2, 7, 40])
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_array_that_was_resized(count: int, shuffle: bool) -> None:
    array = np.arange(20)
    source = ArraySource({"x": array}, batch_size=4, shuffle=shuffle, seed=1)
    source.batch(0)
    array.resize(count, refcheck=False)
    with pytest.raises(StagingError, match=rf"resized .* had the shape of \(20,\), and has \({count},\)"):
        source.batch(1)


@pytest.mark.parametrize("part", [slice(None), slice(100, None), slice(None, None, 2)], ids=str)
def test_a_file_that_was_cut(tmp_path: Path, part: slice) -> None:
    source = ArraySource(stored(tmp_path / "x.npy")[part], batch_size=4, shuffle=True, seed=1)
    source.batch(0)
    os.truncate(tmp_path / "x.npy", 4096)
    with pytest.raises(RecordFileError, match=r"ArraySource: the file '.*x\.npy' was cut to 4096 bytes after \d+ were"):
        source.batch(1)


def test_a_file_that_was_replaced_or_removed_stays_as_it_was_mapped(tmp_path: Path) -> None:
    source = ArraySource(stored(tmp_path / "x.npy"), batch_size=4)
    stored(tmp_path / "x.npy", first=9000)
    assert source.batch(1).tolist() == [4, 5, 6, 7]
    os.remove(tmp_path / "x.npy")
    assert source.batch(2).tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_no_worker_reads_another_file_than_the_program(tmp_path: Path, change: str) -> None:
    part = ArraySource(stored(tmp_path / "x.npy"), batch_size=4)
    source = concatenate([part, ArraySource(np.arange(8), batch_size=4)])
    if change == "replaced":
        stored(tmp_path / "x.npy", first=9000)
    else:
        os.remove(tmp_path / "x.npy")
    expected = r"x\.npy' was replaced" if change == "replaced" else r"No such file or directory: '.*x\.npy'"
    with pools(source) as (pool,), pytest.raises(SourceError, match=expected):
        pool.make(0)


@pytest.mark.parametrize("kind", [ArraySource, MapSource])
def test_a_worker_that_replaces_another_one_reads_the_same_file(tmp_path: Path, kind: Any) -> None:
    source = kind(stored(tmp_path / "x.npy"), batch_size=4)
    with pools(source) as (pool,):
        assert pool.make(0).tolist() == [0, 1, 2, 3]
        stored(tmp_path / "x.npy", first=9000)
        os.kill(pool.pids[0], 9)
        with pytest.raises(SourceError, match=r"x\.npy'.* was replaced or removed"):
            for number in range(1, 9):
                assert pool.make(number).tolist() == [4 * number + each for each in range(4)]
