"""The index of record files: when it is built and rebuilt, where it is stored, and hostile index files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from staging_tf1.cli.index import main
from staging_tf1.errors import SpecError, StagingWarning
from staging_tf1.sources import RecordFileError, TFRecordSource, write_tfrecords
from staging_tf1.sources.files import tfrecord_index
from staging_tf1.sources.files.tfrecord_frames import masked_crcs
from staging_tf1.sources.files.tfrecord_index import open_index

_RECORDS = [b"a" * 10, b"", b"b" * 3000]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_tfrecords(_RECORDS, tmp_path / "a.tfrecord")[0]


def _batch(path: str) -> list[bytes]:
    found: list[bytes] = TFRecordSource(path, batch_size=3).batch(0).tolist()
    return found


def test_checksums_are_those_of_the_standard() -> None:
    # RFC 3720, appendix B.4, masked as in tensorflow/core/lib/hash/crc32c.h
    crcs = {b"\0" * 32: 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}
    masked = [((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32 for crc in crcs.values()]
    assert masked_crcs(list(crcs)).tolist() == masked


def test_tensorflow_reads_what_is_written_here(path: str) -> None:
    assert [record.numpy() for record in tf.data.TFRecordDataset(path)] == _RECORDS


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({}, SpecError, r"^got no records to write: the dict is empty\.$"),
        ({"x": np.zeros(0)}, SpecError, r"^got no records to write: the lengths are \{'x': 0\}\.$"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, SpecError, r"^arrays have different lengths: 'x' has 2, 'y' has 3\. Re"),
        ({"x": np.zeros(2, complex)}, SpecError, r"^array 'x': a tf\.train\.Example cannot hold dtype complex128:"),
        ({"x": np.zeros(2, np.uint64)}, SpecError, r"^array 'x': a tf\.train\.Example cannot hold dtype uint64:"),
        ({"x": np.array([np.inf, np.nan, -1e39])}, SpecError, r"^array 'x': -1e\+39 is too large for float32, as whic"),
    ],
)
def test_arrays_that_are_no_records_are_refused(tmp_path: Path, arrays: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        write_tfrecords(arrays, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_file_need_not_be_utf8(tmp_path: Path) -> None:
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"))
    write_tfrecords(_RECORDS, path)
    assert _batch(path) == _RECORDS


def test_the_index_is_made_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    os.unlink(path + ".index.npy")
    assert _batch(path) == _RECORDS

    def no_scan(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the file was scanned again")

    monkeypatch.setattr(tfrecord_index, "scan", no_scan)
    assert _batch(path) == _RECORDS


def test_the_index_is_made_again_when_size_or_time_changed(path: str) -> None:
    os.utime(path, ns=(0, 12345))
    assert open_index(path).mtime_ns == 12345 and _batch(path) == _RECORDS
    status = os.stat(path)
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"other")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert _batch(path) == [b"other"]


def test_a_compressed_file_is_unpacked_again_when_it_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "z")
    for records in ([b"one"], [b"two", b"three"]):
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for record in records:
                writer.write(record)
        assert _batch(path) == records
    os.unlink(path + ".unpacked")
    assert _batch(path) == [b"two", b"three"]


def test_the_index_of_another_file_is_refused(path: str, tmp_path: Path) -> None:
    other = write_tfrecords([b"x" * 3010, b"", b""], tmp_path / "b")[0]
    assert os.path.getsize(other) == os.path.getsize(path)
    status = os.stat(other)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(other + ".index.npy", path + ".index.npy")
    source = TFRecordSource(path, batch_size=3)
    message = (
        rf"^{path}: the record at byte 0 does not match the index {path}\.index\.npy\. The index belongs to another "
        rf"file, or the file was changed in place\. Recreate it: staging-tf1 index --force {path}$"
    )
    with pytest.raises(RecordFileError, match=message):
        source.batch(0)
    assert main(["--force", path]) == 0
    assert _batch(path) == _RECORDS


class _Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["HOSTILE_TARGET"],)


@pytest.mark.parametrize("form", ["npy", "pickle", "text", "zip", "header", "float", "short", "magic", "empty"])
def test_a_hostile_index_gives_an_error_and_nothing_else(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    target = tmp_path / "made by the hostile file"
    monkeypatch.setenv("HOSTILE_TARGET", str(target))
    place = Path(path + ".index.npy")
    if form == "npy":
        with place.open("wb") as file:
            np.save(file, np.array([_Hostile()], object), allow_pickle=True)
    elif form == "pickle":
        place.write_bytes(pickle.dumps(_Hostile()))
    elif form == "zip":
        place.write_bytes(b"PK\x03\x04 this is no archive")
    elif form == "header":
        place.write_bytes(place.read_bytes()[:40])
    elif form in ("text", "empty"):
        place.write_text("offsets: 0, 1, 2" if form == "text" else "")
    else:
        good = np.load(place)
        bad = {"float": good.astype(float), "short": good[:5], "magic": good * 0}[form]
        np.save(place, bad)
    message = (
        rf"^{place} should be the index of {path}, but is not: .*\. Delete it to have it recreated at the next "
        rf"use, or recreate it now: staging-tf1 index --force {path}$"
    )
    with pytest.raises(RecordFileError, match=message) as caught:
        _batch(path)
    # numpy's own advice for such a file would run code from it.
    assert "pickle" not in str(caught.value)
    place.unlink()
    assert _batch(path) == _RECORDS and place.exists(), "made again"
    assert not target.exists()


def test_offsets_that_lead_out_of_the_file_give_an_error(path: str) -> None:
    place = path + ".index.npy"
    good = np.load(place)
    for change in (10**15, -(10**15), 5):
        bad = good.copy()
        bad[6] += change
        np.save(place, bad)
        with pytest.raises(RecordFileError, match=r"the record at byte \d+ does not match the index"):
            _batch(path)
    bad = good.copy()
    bad[-1] += 100
    np.save(place, bad)
    with pytest.raises(RecordFileError, match=r"its offsets do not cover the file"):
        _batch(path)


def test_folders_that_cannot_be_written(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can write to every folder, so a folder takes the place of the index file."""
    os.unlink(path + ".index.npy")
    cache = tmp_path / "cache"
    monkeypatch.setenv("STAGING_TF1_CACHE", str(cache))

    def cannot_replace(source: str, target: str) -> None:
        if not str(target).startswith(str(cache)):
            raise PermissionError(13, "Permission denied")
        os.rename(source, target)

    monkeypatch.setattr(tfrecord_index.os, "replace", cannot_replace)
    index = open_index(path)
    assert index.location is not None and index.location.startswith(str(cache))
    assert open_index(path).location == index.location
    assert _batch(path) == _RECORDS
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "cache"]

    cache.joinpath("file").write_text("")
    monkeypatch.setenv("STAGING_TF1_CACHE", str(cache / "file"))
    with pytest.warns(StagingWarning, match=rf"^cannot write the index of {path} .* Set STAGING_TF1_CACHE to a wri"):
        assert open_index(path).location is None


def test_the_command_indexes_checks_and_complains(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.unlink(path + ".index.npy")
    assert main([path]) == 0
    assert capsys.readouterr().out == f"{path}: 3 records, index {path}.index.npy\n"
    with open(path, "r+b") as file:
        file.seek(12)
        file.write(b"X")
    assert main(["--check", path]) == 1
    out, err = capsys.readouterr()
    assert out.endswith("3 records, 1 corrupt, index " + path + ".index.npy\n")
    assert err.startswith(f"staging-tf1 index: {path}: record 0, at byte 0, is corrupt: its checksum does not match")
    assert main([path + "-none"]) == 1
    assert capsys.readouterr().err.startswith("staging-tf1 index: no file matches")
    os.truncate(path, 20)
    assert main([path]) == 1
    err = capsys.readouterr().err
    assert "the file ends 6 bytes before the end of the record" in err
    # The cure is the command's flag, not the argument of a source.
    assert "or use --skip-corrupt to skip the 20 bytes" in err
    assert main(["--skip-corrupt", path]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: 0 records, 20 bytes lost after them, index")


def test_data_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`test_images.py` has more: the same function reads both."""
    pickled, single = tmp_path / "p.npz", tmp_path / "s.npy"
    np.savez(pickled, x=np.array([{}], object))
    np.save(single, np.zeros(3))
    for file, message in (
        (pickled, f"{pickled}: x holds Python objects, which are not loaded"),
        (single, f"{single} is not an .npz file: it holds one array. Write it with numpy.savez."),
    ):
        assert main(["--write", str(tmp_path / "out"), "--from", str(file)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"staging-tf1 index: {message}") and error.count("\n") == 1
        assert "allow_pickle" not in error
