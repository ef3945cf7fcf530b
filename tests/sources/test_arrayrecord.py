"""ArrayRecordSource on real files: order, parsing, cache, shards, and the messages for bad files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import staging_tf1 as staging
from staging_tf1.cli import index as cli
from staging_tf1.errors import SpecError, StagingWarning
from staging_tf1.sources import ArrayRecordSource, CorruptRecordError, RecordFileError, write_array_records
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import ArraySpec
from staging_tf1.testing import assert_deterministic, assert_resumes_everywhere, assert_shards_partition

module = pytest.importorskip("array_record.python.array_record_module")

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write records with the package's own writer."""

    def to_file(records: Any, name: str = "a.array_record", options: str = "group_size:1,uncompressed") -> str:
        path = str(tmp_path / name)
        writer = module.ArrayRecordWriter(path, options)
        for record in records:
            writer.write(record)
        writer.close()
        return path

    return to_file


def _records(n: int, first: int = 0) -> list[bytes]:
    return [f"record {number} ".encode() * (number % 5 + 1) for number in range(first, first + n)]


def _everything(source: ArrayRecordSource) -> list[bytes]:
    assert source.num_batches is not None
    return [record for k in range(source.num_batches) for record in source.batch(k).tolist()]


@pytest.mark.parametrize("options", ["group_size:1", "group_size:1,uncompressed", "group_size:4", ""])
def test_records_are_what_the_package_wrote(write: Write, options: str) -> None:
    source = ArrayRecordSource(write(_records(23), options=options), batch_size=5, epochs=1)
    assert _everything(source) == _records(23)
    assert source.spec == ArraySpec((None,), np.dtype(object), "serialized")
    assert source.fingerprint()["source"] == "ArrayRecordSource"


def test_a_shuffle_is_of_all_files(write: Write, tmp_path: Path) -> None:
    write(_records(4), "b-0")
    write(_records(7, first=4), "b-1", "group_size:1")
    source = ArrayRecordSource(tmp_path / "b-?", batch_size=3, epochs=1, seed=2, shuffle=True)
    assert source.num_records == 11 and [os.path.basename(path) for path in source.files] == ["b-0", "b-1"]
    assert _everything(source) == [_records(11)[i] for k in range(4) for i in source.record_ids(k)]
    assert sorted(_everything(source)) == sorted(_records(11)) != _everything(source)
    in_order = ArrayRecordSource([tmp_path / "b-1", tmp_path / "b-0"], batch_size=11, epochs=1)
    assert _everything(in_order) == _records(7, first=4) + _records(4)


def test_the_order_is_that_of_the_same_records_in_tfrecord_files(write: Write, tmp_path: Path) -> None:
    tfrecord = str(tmp_path / "a.tfrecord")
    staging.sources.write_tfrecords(iter(_records(23)), tfrecord)
    options: Any = dict(batch_size=4, shuffle=True, seed=5, epochs=2, shard=(1, 2))
    other = staging.sources.TFRecordSource(tfrecord, **options)
    source = ArrayRecordSource(write(_records(23)), **options)
    assert _everything(source) == [record for k in range(other.num_batches or 0) for record in other.batch(k)]


def test_every_promise_of_a_source_is_kept(write: Write) -> None:
    paths = [write(_records(13), "a"), write(_records(10, first=13), "b")]

    def make() -> ArrayRecordSource:
        return ArrayRecordSource(paths, batch_size=4, epochs=2, shuffle=True, seed=5, cache_bytes=300)

    assert_resumes_everywhere(make)
    assert_deterministic(make, threads=4)
    for n in (2, 5):
        assert_shards_partition(make, n)


def test_features_are_parsed_in_the_graph_and_reach_each_step_once(write: Write) -> None:
    def example(number: int) -> bytes:
        feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number, -number]))}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    features = {"x": tf.io.FixedLenFeature([2], tf.int64)}
    source = ArrayRecordSource(write(map(example, range(20))), batch_size=4, epochs=1, features=features)
    with tf.Graph().as_default():
        parsed = staging.staged(source, num_threads=2)
        seen = []
        with staging.StagingSession() as session:
            while not session.should_stop():
                seen += session.run(parsed)["x"].tolist()
    assert seen == [[number, -number] for number in range(20)]


def _parse(record: bytes) -> dict[str, Any]:
    number = int(record.split()[1])
    return {"id": np.int32(number), "image": np.full((2, 3), number, np.uint8), "name": record[:8]}


def test_parse_fn_makes_aligned_batches(write: Write) -> None:
    source = ArrayRecordSource(write(_records(10)), batch_size=4, parse_fn=_parse, shuffle=True, seed=3)
    assert source.spec["image"] == ArraySpec((None, 2, 3), np.uint8, "image")
    batch = source.batch(0)
    assert batch["id"].tolist() == source.record_ids(0).tolist()
    assert all(is_aligned(batch[key]) for key in ("id", "image"))


def test_records_of_one_length_come_as_a_matrix(write: Write) -> None:
    records = [bytes([number]) * 7 for number in range(20)]
    paths = [write(records[:13], "a"), write(records[13:], "b")]
    source = ArrayRecordSource(paths, batch_size=6, epochs=1, as_uint8=True, shuffle=True, seed=4)
    assert source.spec == ArraySpec((None, 7), np.uint8, "serialized")
    for index in range(4):
        batch = source.batch(index)
        assert batch[:, 0].tolist() == batch[:, 6].tolist() == source.record_ids(index).tolist() and is_aligned(batch)
    assert_deterministic(source)
    odd = ArrayRecordSource(write([b"1234567", b"12345678"], "odd"), batch_size=2, as_uint8=True)
    with pytest.raises(SpecError, match=r"odd: record 1 has 8 bytes, but the first record has 7\. as_uint8=True requ"):
        odd.batch(0)


def test_the_cache_is_bounded_and_saves_parsing(write: Write) -> None:
    parsed: list[bytes] = []

    def parse(record: bytes) -> np.ndarray:
        parsed.append(record)
        return np.zeros(100, np.uint8)

    source = ArrayRecordSource(write(_records(10)), batch_size=10, parse_fn=parse, cache_bytes=650)
    source.batch(0)
    first = len(parsed)
    source.batch(1)
    assert source.cached_bytes == 600 and len(parsed) - first == 4


def test_a_shard_reads_only_its_own_records(write: Write) -> None:
    source = ArrayRecordSource(write(_records(20)), batch_size=5, epochs=1, shuffle=True, seed=1)
    shard = source.shard(1, 3)
    asked = _count_reads(shard)
    delivered = [int(record.split()[1]) for record in _everything(shard)]
    assert asked == delivered and len(delivered) == len(set(delivered)) == 7


def _count_reads(source: ArrayRecordSource) -> list[int]:
    """Record which records the package's own reader is asked for."""
    file = source._files._open[0]  # type: ignore[attr-defined]
    reader, asked = file._reader, []

    class Counting:
        def read(self, records: list[int]) -> Any:
            asked.extend(records)
            return reader.read(records)

    file._reader = Counting()
    return asked


def test_more_files_than_are_held_open(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staging_tf1.sources.files.many_files._FILES_OPEN", 2)
    paths = [write(_records(3, first=3 * number), f"f{number}") for number in range(5)]
    source = ArrayRecordSource(paths, batch_size=4, epochs=1, shuffle=True, seed=1)
    assert sorted(_everything(source)) == sorted(_records(15))
    assert_deterministic(source, threads=4)
    assert len(source._files._open._open) == 2  # type: ignore[attr-defined]


def _flip(path: str, place: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 1
    status = os.stat(path)
    Path(path).write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_corrupt_record_is_named_or_counted(write: Write) -> None:
    path = write(_records(10))
    _flip(path, Path(path).read_bytes().index(_records(2)[1]))
    source = ArrayRecordSource(path, batch_size=4, epochs=1)
    message = (
        rf"^{path}: record 1, at byte \d+, is corrupt: Corrupted .* hash mismatch .*\. Copy the file again, or use "
        rf"skip_corrupt=True to skip and count such records\.$"
    )
    with pytest.raises(CorruptRecordError, match=message) as caught:
        source.batch(0)
    assert caught.value.path == path and 0 < caught.value.offset < 300
    assert source.batch(1).tolist() == _records(10)[4:8]
    skipping = ArrayRecordSource(path, batch_size=4, epochs=1, skip_corrupt=True)
    assert skipping.spec.shape == (None,)
    for _ in range(2):
        assert _everything(skipping) == [record for i, record in enumerate(_records(10)) if i != 1]
    assert skipping.num_skipped == 1


def test_a_matrix_without_its_corrupt_rows(write: Write) -> None:
    path = write([bytes([number + 65]) * 7 for number in range(5)])
    _flip(path, Path(path).read_bytes().index(b"AAAAAAA"))
    with pytest.raises(CorruptRecordError, match=r"record 0, at byte \d+, is corrupt"):
        ArrayRecordSource(path, batch_size=5, as_uint8=True).batch(0)
    source = ArrayRecordSource(path, batch_size=5, as_uint8=True, skip_corrupt=True)
    assert source.batch(0)[:, 0].tolist() == [66, 67, 68, 69] and source.num_skipped == 1


def test_files_of_corrupt_records_only(write: Write) -> None:
    path = write([b"AAAAAAA"])
    _flip(path, Path(path).read_bytes().index(b"AAAAAAA"))
    with pytest.raises(RecordFileError, match=rf"^all 1 records are corrupt in {path}\.$"):
        ArrayRecordSource(path, batch_size=1, as_uint8=True, skip_corrupt=True).batch(0)
    with pytest.raises(RecordFileError, match=r"^ArrayRecordSource: all 1 records are corrupt\.$"):
        _ = ArrayRecordSource(path, batch_size=1, parse_fn=len, skip_corrupt=True).spec


@pytest.mark.parametrize("missing", [1, 1000, 65_536, 100_000])
def test_a_cut_file_is_named(write: Write, missing: int) -> None:
    path = write([os.urandom(1000) for _ in range(200)])
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


def test_what_is_no_array_record_file_is_named(tmp_path: Path, write: Write) -> None:
    text, empty, tfrecord = tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "a.tfrecord"
    text.write_text("These are not records, whatever the name says.\n" * 9000)
    empty.touch()
    staging.sources.write_tfrecords([b"record"], tfrecord)
    message = r" is not an ArrayRecord file: its header is invalid\. Use TFRecordSource for TFRecord files\.$"
    for path in (text, empty, tfrecord):
        with pytest.raises(RecordFileError, match=rf"^{path}{message}"):
            ArrayRecordSource([write(_records(3)), path], batch_size=1)
    with pytest.raises(RecordFileError, match=rf"^record file '{tmp_path}' is a folder, expected a regular file\.$"):
        ArrayRecordSource([write(_records(3)), tmp_path], batch_size=1)


def test_files_that_are_not_there_or_hold_nothing_are_named(tmp_path: Path, write: Write) -> None:
    with pytest.raises(
        RecordFileError, match=r"^no file matches '.*/none-\*' \(current folder: .*\)\. Check the path; gl"
    ):
        ArrayRecordSource(tmp_path / "none-*", batch_size=1)
    with pytest.raises(
        RecordFileError, match=r"^ArrayRecordSource got an empty list of files, expected at least one path or"
    ):
        ArrayRecordSource([], batch_size=1)
    path = write([])
    with pytest.raises(RecordFileError, match=rf"^ArrayRecordSource found no records in {path}\.$"):
        ArrayRecordSource(path, batch_size=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(write: Write) -> None:
    path = write(_records(3))
    os.chmod(path, 0)
    with pytest.raises(RecordFileError, match=rf"^ArrayRecord file {path} cannot be opened: Permission denied\.$"):
        ArrayRecordSource(path, batch_size=1)


def test_a_file_may_vanish_once_it_is_open_but_not_before(write: Write) -> None:
    path = write(_records(10))
    source, unread = (ArrayRecordSource(path, batch_size=4, epochs=1) for _ in range(2))
    source.batch(0)
    os.unlink(path)
    assert source.batch(1).tolist() == _records(10)[4:8]
    message = rf"^ArrayRecord file {path} can no longer be opened: No such file or directory\.$"
    with pytest.raises(RecordFileError, match=message):
        unread.batch(0)


def test_a_file_that_is_cut_during_the_run_is_named(write: Write) -> None:
    path = write([os.urandom(1000) for _ in range(200)])
    size = os.path.getsize(path)
    source = ArrayRecordSource(path, batch_size=4, epochs=1)
    source.batch(49)
    os.truncate(path, 3000)
    message = rf"^ArrayRecord file {path} was truncated to 3000 bytes while in use; it had {size}\.$"
    with pytest.raises(RecordFileError, match=message):
        source.batch(49)


def test_a_file_that_was_written_anew_is_named(write: Write) -> None:
    path = write(_records(10))
    source = ArrayRecordSource(path, batch_size=4)
    os.utime(path, ns=(1, 1))
    size = os.path.getsize(path)
    message = (
        rf"^ArrayRecord file {path} has changed since the source was created: it still has {size} bytes, but was "
        r"modified: on \d{4}-.* before, on 1970-01-01 .*\.000000001 now\. Create the source again\.$"
    )
    with pytest.raises(RecordFileError, match=message):
        source.batch(0)


def test_groups_are_warned_of_where_they_cost(write: Write) -> None:
    path = write(_records(10), options="group_size:8")
    message = (
        rf"^ArrayRecordSource: {path} was written in groups of 8 records\. Reading one record decompresses its whole "
        rf"group, which makes shuffled reads many times slower\. Write the file with group_size:1, as "
        rf"staging_tf1\.sources\.write_array_records does, or do not shuffle\.$"
    )
    with pytest.warns(StagingWarning, match=message) as caught:
        source = ArrayRecordSource(path, batch_size=4, shuffle=True, seed=1, epochs=1)
    assert caught[0].filename == __file__
    assert sorted(_everything(source)) == sorted(_records(10))
    ArrayRecordSource(path, batch_size=4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"features": {}, "parse_fn": len}, ValueError, r"^ArrayRecordSource got both features= and parse_fn=\. "),
        ({"cache_bytes": 9, "as_uint8": True}, ValueError, r"^ArrayRecordSource got as_uint8= and cache_bytes=\. The "),
        ({"features": {}, "transform": lambda b, r: b}, ValueError, r"^ArrayRecordSource got features= and transform="),
        ({"parse_fn": 3}, TypeError, r"^ArrayRecordSource got parse_fn=3, expected a function from bytes to arrays\.$"),
        (
            {"batch_size": 0},
            ValueError,
            r"^ArrayRecordSource got batch_size=0, expected a whole number from 1 to 2147483647 \(",
        ),
        (
            {"shard": (10, 11)},
            ValueError,
            r"^ArrayRecordSource got shard=\(10, 11\), which would be empty: 10 records are",
        ),
    ],
)
def test_bad_arguments_are_refused(write: Write, options: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ArrayRecordSource(write(_records(10)), **{"batch_size": 2, **options})


def test_records_that_parse_unlike_the_first_are_named(write: Write) -> None:
    message = r"a\.array_record: record 1: parse_fn returned component 'x' as float64 \[.*\], but float64"
    with pytest.raises(SpecError, match=message):
        ArrayRecordSource(write(_records(10)), batch_size=4, parse_fn=lambda r: {"x": np.zeros(len(r))}).batch(0)


def test_many_threads_share_one_reader(write: Write) -> None:
    records = [number.to_bytes(4, "little") * 50 for number in range(500)]
    source = ArrayRecordSource(write(records, options="group_size:1"), batch_size=8, shuffle=True, seed=1, epochs=8)
    wrong: list[int] = []
    together = threading.Barrier(6)

    def read(first: int) -> None:
        together.wait()
        for number in range(first, source.num_batches or 0, 6):
            if source.batch(number).tolist() != [records[i] for i in source.record_ids(number)]:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arrays_are_written_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = {"image": np.arange(60, dtype=np.uint8).reshape(10, 2, 3), "label": np.arange(10)}
    np.savez(tmp_path / "data.npz", **arrays)
    out = str(tmp_path / "train.array_record")
    assert cli.main(["--write", out, "--from", str(tmp_path / "data.npz"), "--shards", "3"]) == 0
    names = [f"{out}-{number:05d}-of-00003" for number in range(3)]
    said = capsys.readouterr().out
    assert f"wrote 10 records to 3 files, {names[0]} to {names[2]}" in said
    assert "staging.sources.ArrayRecordSource(files, batch_size=..., features={\n    'image': tf.io.FixedLenF" in said
    assert sorted(os.listdir(tmp_path)) == sorted(["data.npz", *map(os.path.basename, names)])
    source = ArrayRecordSource(out + "-*", batch_size=10, shuffle=True, seed=1)
    assert source._files.group_sizes == [1, 1, 1]  # type: ignore[attr-defined]
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        parsed = session.run(tf.io.parse_example(source.batch(0), features))
    ids = source.record_ids(0)
    assert parsed["label"].tolist() == ids.tolist()
    assert parsed["image"].tolist() == [arrays["image"][i].tobytes() for i in ids]


def test_the_command_checks_array_record_files(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(_records(10))
    assert cli.main([path]) == 0
    assert cli.main(["--check", path]) == 0
    _flip(path, Path(path).read_bytes().index(_records(2)[1]))
    assert cli.main(["--check", path]) == 1
    said = capsys.readouterr()
    kind = ", an ArrayRecord file with its own index"
    assert (
        said.out
        == f"{path}: 10 records{kind}\n{path}: 10 records, 0 corrupt{kind}\n{path}: 10 records, 1 corrupt{kind}\n"
    )
    assert f"staging-tf1 index: {path}: record 1, at byte " in said.err


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def records() -> Any:
        yield b"one"
        raise KeyError("no such label")

    with pytest.raises(KeyError, match=r"no such label"):
        write_array_records(records(), tmp_path / "out.array_record")
    with pytest.raises(OSError, match=r"No such file or directory"):
        write_array_records([b"one"], tmp_path / "none" / "out.array_record")
    with pytest.raises(ValueError, match=r"^write_array_records: shards=2 needs arrays, whose length is known in adv"):
        write_array_records([b"one"], tmp_path / "out.array_record", shards=2)
    with pytest.raises(SpecError, match=r"^got no records to write"):
        write_array_records({}, tmp_path / "out.array_record")
    assert not os.listdir(tmp_path)


def test_the_package_is_imported_only_when_it_is_used() -> None:
    code = (
        "import sys; sys.modules['array_record'] = None\n"
        "from staging_tf1.sources import ArrayRecordSource, write_array_records\n"
        "for call in (lambda: ArrayRecordSource(sys.executable, batch_size=1),\n"
        "             lambda: write_array_records([b''], 'nowhere')):\n"
        "    try: call()\n"
        "    except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == (
        "ArrayRecordSource needs array-record. Install it: pip install 'staging-tf1[arrayrecord]'\n"
        "write_array_records needs array-record. Install it: pip install 'staging-tf1[arrayrecord]'\n"
    )
