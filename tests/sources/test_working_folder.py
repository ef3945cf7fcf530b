"""A source that was made from relative paths reads the same files after the program has changed its folder."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1 import sources
from staging_tf1.data import load_images
from staging_tf1.errors import RecordFileError
from staging_tf1.sources import ArrayRecordSource, ArraySource, MapSource, TFRecordSource
from staging_tf1.testing import assert_works_in_processes

RECORDS = [b"%d" % number for number in range(6)]


def tfrecords(path: str) -> str:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    sources.write_tfrecords(RECORDS, path)
    return path


def compressed(path: str) -> str:
    Path(path).write_bytes(gzip.compress(Path(tfrecords("plain")).read_bytes()))
    return path


def array_records(path: str) -> str:
    sources.write_array_records(RECORDS, path)
    return path


def mapped(path: Any) -> Any:
    np.save(path, np.arange(6))
    return np.load(path, mmap_mode="r")


def images(path: str) -> Any:
    arrays = {f"x_{part}": np.zeros((6, 2, 2), np.uint8) for part in ("train", "test")}
    np.savez(path, **arrays, **{f"y_{part}": np.arange(6) for part in ("train", "test")})
    return load_images(path).y_train


# Each makes a source in the current folder, from relative paths.
MADE: dict[str, Callable[..., Any]] = {
    "a TFRecord file": lambda **options: TFRecordSource(tfrecords("a"), **options),
    "pread": lambda **options: TFRecordSource(tfrecords("a"), access="pread", **options),
    "rows of bytes": lambda **options: TFRecordSource(tfrecords("a"), as_uint8=True, **options),
    "a glob": lambda **options: TFRecordSource(
        [tfrecords("b/x"), os.path.dirname(tfrecords("c/x")) + "/x*"], **options
    ),
    "files of one name": lambda **options: TFRecordSource([tfrecords("../x"), tfrecords("b/x")], **options),
    "both kinds of path": lambda **options: TFRecordSource(
        [tfrecords("b/x"), os.path.abspath(tfrecords("c/x"))], **options
    ),
    "a compressed file": lambda **options: TFRecordSource(compressed("a"), **options),
    "an ArrayRecord file": lambda **options: ArrayRecordSource(array_records("a"), **options),
    "a combination": lambda **options: sources.concatenate(
        [TFRecordSource(tfrecords(name), **options) for name in ("../x", "b/x")]
    ),
    "a mapped array": lambda **options: ArraySource(mapped("a.npy"), **options),
    "one of a Path": lambda **options: ArraySource(mapped(Path("a.npy")), **options),
    "mapped records": lambda **options: MapSource(mapped("a.npy"), **options),
    "a cache": lambda **options: sources.cached(np.arange(6), "cache", **options),
    "an opened cache": lambda **options: sources.cached(mapped("a.npy"), Path("deep/cache"), **options),
    "images": lambda **options: ArraySource(images("a.npz"), **options),
}


def contents(source: Any) -> list[Any]:
    return [batch.tolist() for batch in source.batches()]


@pytest.mark.parametrize("kind", MADE)
def test_the_folder_may_change(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "an ArrayRecord file":
        pytest.importorskip("array_record")
    for name in ("first/run", "elsewhere/deep/run"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "first/run")
    options = dict(batch_size=2, epochs=1, shuffle=True, seed=1)
    here = MADE[kind](**options)
    expected, fingerprint = contents(here), here.fingerprint()
    source = MADE[kind](**options)
    monkeypatch.chdir(tmp_path / "elsewhere/deep/run")
    assert contents(source) == expected and source.fingerprint() == fingerprint
    # A run resumes in another folder, too.
    assert MADE[kind](**options).fingerprint() == fingerprint


def test_worker_processes_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    made = [MADE[kind](batch_size=2, epochs=1) for kind in ("a TFRecord file", "a cache")]
    monkeypatch.chdir(tmp_path / "run")
    assert_works_in_processes(sources.zip_records(made), processes=1)


@pytest.mark.parametrize("options", [{}, {"local_cache": "copies"}])
@pytest.mark.parametrize("kind", [TFRecordSource, ArrayRecordSource])
def test_the_folders_of_copies_may_be_relative(
    kind: Any, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("STAGING_TF1_CACHE", "kept")
    monkeypatch.chdir(tmp_path)
    url = f"memory://{tmp_path.name}/a.rec"
    write = sources.write_tfrecords if kind is TFRecordSource else sources.write_array_records
    write(RECORDS, url)
    if kind is TFRecordSource and not options:
        fsspec.filesystem("memory").pipe(url, gzip.compress(fsspec.filesystem("memory").cat(url)))
    source = kind(url, batch_size=6, epochs=1, **options)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert contents(source) == [RECORDS]
    assert list(elsewhere.iterdir()) == [], "no second copy"


def test_the_file_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = TFRecordSource(tfrecords("a"), batch_size=6, epochs=1)
    assert source.files == ["a"]
    Path("a").unlink()
    monkeypatch.chdir("/")
    with pytest.raises(RecordFileError, match=rf"^record file {tmp_path}/a can no longer be opened: No such file"):
        source.batch(0)
