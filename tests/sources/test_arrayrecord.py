"""What only ArrayRecord files have: groups, an index at the end, one reader for all threads, and a package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_record_files import FORMATS, everything, flip, records_of, written

import staging_tf1 as staging
from staging_tf1.cli import index as cli
from staging_tf1.errors import StagingWarning
from staging_tf1.sources import ArrayRecordSource, CorruptRecordError, RecordFileError
from staging_tf1.testing import assert_deterministic

module = pytest.importorskip("array_record.python.array_record_module")

FORMAT = FORMATS["ArrayRecord"]


def test_more_files_than_are_held_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staging_tf1.sources.files.many_files._FILES_OPEN", 2)
    paths = [written(FORMAT, tmp_path / f"{number}", records_of(3, first=3 * number)) for number in range(5)]
    source = ArrayRecordSource(paths, batch_size=4, epochs=1, shuffle=True, seed=1)
    assert sorted(everything(source)) == sorted(records_of(15))
    assert_deterministic(source, threads=4)
    assert len(source._files._open._open) == 2  # type: ignore[attr-defined]


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    for named, call in {
        "ArrayRecordSource": lambda: ArrayRecordSource(sys.executable, batch_size=1),
        "write_array_records": lambda: staging.sources.write_array_records([b""], "nowhere"),
    }.items():
        with pytest.raises(
            ImportError, match=rf"^{named} needs array-record\. Install it: pip install 'staging-tf1\[a"
        ):
            call()


def test_files_of_corrupt_records_only(tmp_path: Path) -> None:
    path = written(FORMAT, tmp_path / "a", [b"AAAAAAA"])
    flip(path, b"AAAAAAA")
    with pytest.raises(RecordFileError, match=rf"^all 1 records are corrupt in {path}\.$"):
        ArrayRecordSource(path, batch_size=1, as_uint8=True, skip_corrupt=True).batch(0)
    with pytest.raises(RecordFileError, match=r"^ArrayRecordSource: all 1 records are corrupt\.$"):
        _ = ArrayRecordSource(path, batch_size=1, parse_fn=len, skip_corrupt=True).spec


@pytest.mark.parametrize("missing", [1, 1000, 65_536, 100_000])
def test_a_cut_file_is_named(tmp_path: Path, missing: int) -> None:
    path = written(FORMAT, tmp_path / "a", [os.urandom(1000) for _ in range(200)])
    size = os.path.getsize(path)
    os.truncate(path, size - missing)
    message = (
        rf"^ArrayRecord file {path} is truncated, or the index at its end is corrupt: .+\. "
        rf"Records cannot be located without the index\. Copy the file again\.$"
    )
    for skip in (False, True):
        with pytest.raises(CorruptRecordError, match=message) as caught:
            ArrayRecordSource(path, batch_size=4, skip_corrupt=skip)
    assert caught.value.offset == size - missing


def test_what_is_no_array_record_file_is_named(tmp_path: Path) -> None:
    text, empty, tfrecord = tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "a.tfrecord"
    text.write_text("These are not records, whatever the name says.\n" * 9000)
    empty.touch()
    good = written(FORMAT, tmp_path / "good", records_of(3))
    staging.sources.write_tfrecords([b"record"], tfrecord)
    message = r" is not an ArrayRecord file: its header is invalid\. Use TFRecordSource for TFRecord files\.$"
    for path in (text, empty, tfrecord):
        with pytest.raises(RecordFileError, match=rf"^{path}{message}"):
            ArrayRecordSource([good, path], batch_size=1)


def test_groups_are_warned_of_where_they_cost(tmp_path: Path) -> None:
    path = written(FORMAT, tmp_path / "a", records_of(10), "group_size:8")
    message = (
        rf"^ArrayRecordSource: {path} was written in groups of 8 records\. Reading one record decompresses its whole "
        rf"group, which makes shuffled reads many times slower\. Write the file with group_size:1, as "
        rf"staging_tf1\.sources\.write_array_records does, or do not shuffle\.$"
    )
    with pytest.warns(StagingWarning, match=message) as caught:
        source = ArrayRecordSource(path, batch_size=4, shuffle=True, seed=1, epochs=1)
    assert caught[0].filename == __file__
    assert sorted(everything(source)) == sorted(records_of(10))
    ArrayRecordSource(path, batch_size=4)


def test_the_command_checks_array_record_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(FORMAT, tmp_path / "a", records_of(10))
    assert cli.main([path]) == 0
    assert cli.main(["--check", path]) == 0
    flip(path, records_of(2)[1])
    assert cli.main(["--check", path]) == 1
    said = capsys.readouterr()
    found = ("10 records", "10 records, 0 corrupt", "10 records, 1 corrupt")
    assert said.out == "".join(f"{path}: {each}, an ArrayRecord file with its own index\n" for each in found)
    assert f"staging-tf1 index: {path}: record 1, at byte " in said.err
