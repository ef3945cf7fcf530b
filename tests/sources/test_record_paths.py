"""The files that a list of paths and globs means: none is dropped silently."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from staging_tf1 import sources
from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError, StagingWarning

_WRITERS = {
    sources.TFRecordSource: sources.write_tfrecords,
    sources.ArrayRecordSource: sources.write_array_records,
}


@pytest.fixture(params=_WRITERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kind of source, in a folder with the files `a` (one record) and `b` (two)."""
    monkeypatch.chdir(tmp_path)
    write = _WRITERS[request.param]
    write([b"a0"], "a.rec")
    write([b"b0", b"b1"], "b.rec")
    return request.param


def _read(kind: Any, files: Any) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = kind(files, batch_size=10, epochs=1)
    read: list[bytes] = source.batch(0).tolist()
    assert source.num_records == len(read) == source.fingerprint()["num_records"]
    return read


def _read_and_warn(kind: Any, files: Any, named: str) -> list[bytes]:
    message = (
        rf"^{kind.__name__}: the file {named} .*is matched by a glob and also listed or matched again; it is read "
        rf"once\."
    )
    with pytest.warns(StagingWarning, match=message) as caught:
        source = kind(files, batch_size=10, epochs=1)
    assert caught[0].filename == __file__
    read: list[bytes] = source.batch(0).tolist()
    return read


def test_a_path_that_is_listed_twice_is_read_twice(kind: Any) -> None:
    assert _read(kind, ["a.rec", "a.rec"]) == [b"a0", b"a0"]
    assert _read(kind, ["a.rec", "b.rec", Path("a.rec")]) == [b"a0", b"b0", b"b1", b"a0"]
    assert _read(kind, ["a.rec", os.path.abspath("a.rec")]) == [b"a0", b"a0"]


def test_one_path_or_glob_means_each_file_once(kind: Any) -> None:
    assert _read(kind, "a.rec") == [b"a0"]
    assert _read(kind, "*.rec") == [b"a0", b"b0", b"b1"]
    assert _read(kind, ["b.rec", "a.*"]) == [b"b0", b"b1", b"a0"]


@pytest.mark.parametrize(
    ("files", "named", "wanted"),
    [
        (["*.rec", "a*"], "a.rec", [b"a0", b"b0", b"b1"]),
        (["*.rec", "./*.rec"], r"\./a.rec and 1 more", [b"a0", b"b0", b"b1"]),
        (["b.rec", "*.rec"], "b.rec", [b"b0", b"b1", b"a0"]),
        (["*.rec", "b.rec"], "b.rec", [b"a0", b"b0", b"b1"]),
        (["a.rec", "a.rec", "*.rec"], "a.rec", [b"a0", b"a0", b"b0", b"b1"]),
    ],
)
def test_a_file_that_a_glob_matches_again_is_read_once_and_named(
    kind: Any, files: list[str], named: str, wanted: list[bytes]
) -> None:
    assert _read_and_warn(kind, files, named) == wanted


def test_a_link_is_a_file_of_its_own(kind: Any) -> None:
    os.symlink("a.rec", "c.rec")
    assert _read(kind, "*.rec") == [b"a0", b"b0", b"b1", b"a0"]


def test_what_is_no_regular_file_is_named_if_it_is_listed(kind: Any) -> None:
    os.mkdir("folder")
    os.mkfifo("pipe")
    for path, what in (("folder", "a folder"), ("pipe", "a named pipe"), ("/dev/null", "a device")):
        with pytest.raises(RecordFileError, match=rf"^record file '{path}' is {what}, expected a regular file\.$"):
            kind(["a.rec", path], batch_size=1)


def test_a_refused_argument_leaves_no_index(kind: Any) -> None:
    for name in os.listdir():
        if name.endswith(".npy"):
            os.unlink(name)
    before = sorted(os.listdir())
    for options in ({"batch_size": 0}, {"shuffle": "3"}, {"cache_bytes": -1}, {"epochs": 2**70}, {"seed": 1.5}):
        with pytest.raises((TypeError, ValueError)):
            kind("*.rec", **{"batch_size": 1, **options})
    assert sorted(os.listdir()) == before


def test_the_command_looks_at_a_file_once(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "b.rec", "b.rec"]) == 0
    assert capsys.readouterr().out.count("b.rec: 2 records") == 1
