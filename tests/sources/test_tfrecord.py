"""TFRecordSource on files that TensorFlow wrote: order, parsing, cache, shards, and the messages for bad files."""

from __future__ import annotations

import gzip
import os
import resource
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from staging_tf1.errors import SpecError
from staging_tf1.sources import CorruptRecordError, RecordFileError, TFRecordSource, write_tfrecords
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import ArraySpec, flatten
from staging_tf1.testing import assert_deterministic, assert_resumes_everywhere, assert_shards_partition

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write records with TensorFlow's own writer."""

    def to_file(records: Any, name: str = "a.tfrecord", compression: str = "") -> str:
        path = str(tmp_path / name)
        with tf.io.TFRecordWriter(path, compression) as writer:
            for record in records:
                writer.write(record)
        return path

    return to_file


def _records(n: int, first: int = 0) -> list[bytes]:
    return [f"record {number} ".encode() * (number % 5 + 1) for number in range(first, first + n)]


def _everything(source: TFRecordSource) -> list[bytes]:
    assert source.num_batches is not None
    return [record for k in range(source.num_batches) for record in source.batch(k).tolist()]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_records_are_what_tensorflow_wrote(write: Write, compression: str, access: Any) -> None:
    path = write(_records(23), compression=compression)
    source = TFRecordSource(path, batch_size=5, epochs=1, access=access)
    assert _everything(source) == _records(23)
    assert source.spec == ArraySpec((None,), np.dtype(object), "serialized")
    shuffled = TFRecordSource(path, batch_size=5, epochs=1, shuffle=True, seed=1, access=access)
    assert _everything(shuffled) == [_records(23)[i] for k in range(5) for i in shuffled.record_ids(k)]
    assert sorted(_everything(shuffled)) == sorted(_records(23)) != _everything(shuffled)


def test_several_files_are_numbered_through(write: Write, tmp_path: Path) -> None:
    write(_records(4), "b-0")
    write([], "b-1")
    write(_records(7, first=4), "b-2", "GZIP")
    source = TFRecordSource(tmp_path / "b-?", batch_size=3, epochs=1, seed=2, shuffle=True)
    assert source.num_records == 11 and len(source.files) == 3
    assert sorted(_everything(source)) == sorted(_records(11))
    in_order = TFRecordSource([tmp_path / "b-2", tmp_path / "b-0"], batch_size=11, epochs=1)
    assert _everything(in_order) == _records(7, first=4) + _records(4)


def test_every_promise_of_a_source_is_kept(write: Write) -> None:
    path = write(_records(23))

    def make() -> TFRecordSource:
        return TFRecordSource(path, batch_size=4, epochs=2, shuffle=True, seed=5, cache_bytes=300)

    assert_resumes_everywhere(make)
    assert_deterministic(make, threads=4)
    for n in (2, 5):
        assert_shards_partition(make, n)


def test_features_are_parsed_in_the_graph(write: Write) -> None:
    def example(number: int) -> bytes:
        feature = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number, -number]))}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    path = write(map(example, range(6)))
    features = {"x": tf.io.FixedLenFeature([2], tf.int64)}
    source = TFRecordSource(path, batch_size=3, features=features)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        serialized = tf.compat.v1.placeholder(tf.as_dtype(source.spec.dtype), source.spec.shape)
        parsed = tf.io.parse_example(serialized, source.features)
        assert session.run(parsed, {serialized: source.batch(1)})["x"].tolist() == [[3, -3], [4, -4], [5, -5]]


def _parse(record: bytes) -> dict[str, Any]:
    number = int(record.split()[1])
    return {"id": np.int32(number), "image": np.full((2, 3), number, np.uint8), "name": record[:8]}


def test_parse_fn_makes_aligned_batches(write: Write) -> None:
    source = TFRecordSource(write(_records(10)), batch_size=4, parse_fn=_parse, shuffle=True, seed=3)
    assert source.spec["image"] == ArraySpec((None, 2, 3), np.uint8, "image")
    batch = source.batch(0)
    assert batch["id"].tolist() == source.record_ids(0).tolist()
    assert batch["image"].shape == (4, 2, 3) and all(is_aligned(batch[key]) for key in ("id", "image"))
    assert batch["name"].tolist() == [f"record {i}".encode() for i in source.record_ids(0)]


def test_transform_sees_parsed_records(write: Write) -> None:
    def double(batch: dict[str, Any], rng: np.random.Generator) -> Any:
        return batch["id"] * 2

    source = TFRecordSource(write(_records(10)), batch_size=4, parse_fn=_parse, transform=double)
    assert source.batch(1).tolist() == [8, 10, 12, 14] and source.spec.dtype == np.int32


def test_the_cache_is_bounded_and_saves_parsing(write: Write) -> None:
    parsed: list[bytes] = []

    def parse(record: bytes) -> np.ndarray:
        parsed.append(record)
        return np.zeros(100, np.uint8)

    source = TFRecordSource(write(_records(10)), batch_size=10, parse_fn=parse, cache_bytes=650)
    source.batch(0)
    first = len(parsed)
    source.batch(1)
    assert source.cached_bytes == 600 and len(parsed) - first == 4


@pytest.mark.parametrize("options", [{}, {"parse_fn": len}])
def test_a_batch_may_have_a_kept_record_several_times(write: Write, options: dict[str, Any]) -> None:
    path = write(_records(6))
    kept, fresh = (TFRecordSource(path, batch_size=8, across_epochs=True, **options, cache_bytes=n) for n in (9999, 0))
    for change in (
        lambda source: source,
        lambda source: source.select([5, 1, 5, 0]),
        lambda source: source.weighted([1, 1, 0, 0, 0, 0], seed=3),
    ):
        for k in range(2):
            assert change(kept).batch(k).tolist() == change(fresh).batch(k).tolist()


def test_a_shard_reads_only_its_own_records(write: Write) -> None:
    read: list[int] = []

    def parse(record: bytes) -> np.int64:
        read.append(int(record.split()[1]))
        return np.int64(read[-1])

    source = TFRecordSource(write(_records(20)), batch_size=5, epochs=1, parse_fn=parse, shuffle=True, seed=1)
    shard = source.shard(1, 3)
    delivered = [int(i) for k in range(2) for i in shard.batch(k)]
    assert set(read) == set(delivered) and len(delivered) == len(set(delivered)) == 7


def _flip(path: str, place: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 1
    status = os.stat(path)
    Path(path).write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_corrupt_record_is_named_or_counted(write: Write) -> None:
    path = write(_records(10))
    TFRecordSource(path, batch_size=1)
    _flip(path, 16 + 10 + 12 + 2)  # in the data of record 1; record 0 has 9 bytes
    source = TFRecordSource(path, batch_size=4, epochs=1)
    message = (
        rf"^{path}: record 1, at byte 25, is corrupt: its checksum does not match\. Copy the file again, or "
        rf"use skip_corrupt=True to skip and count such records\.$"
    )
    with pytest.raises(CorruptRecordError, match=message) as caught:
        source.batch(0)
    assert (caught.value.path, caught.value.offset) == (path, 25)
    assert source.batch(1).tolist() == _records(10)[4:8]
    skipping = TFRecordSource(path, batch_size=4, epochs=1, skip_corrupt=True)
    assert skipping.spec.shape == (None,)
    for _ in range(2):
        assert _everything(skipping) == [record for i, record in enumerate(_records(10)) if i != 1]
    assert skipping.num_skipped == 1 and skipping.lost_bytes == 0
    assert len(TFRecordSource(path, batch_size=4, verify=False).batch(0)) == 4


def test_a_cut_file_is_named_or_read_as_far_as_it_goes(write: Write) -> None:
    path = write(_records(10))
    size = os.path.getsize(path)
    os.truncate(path, size - 3)
    message = rf"^{path}: record 9, at byte \d+, is corrupt: the file ends 3 bytes before the end"
    with pytest.raises(CorruptRecordError, match=message):
        TFRecordSource(path, batch_size=4)
    source = TFRecordSource(path, batch_size=4, epochs=1, skip_corrupt=True)
    assert _everything(source) == _records(9) and source.lost_bytes > 0
    with pytest.raises(CorruptRecordError, match=message):  # although its index exists
        TFRecordSource(path, batch_size=4)


def test_a_broken_length_is_found_where_it_stands(write: Write) -> None:
    for place in (25, 31):  # the lowest and a high byte of the length of record 1
        path = write(_records(10), f"broken-{place}")
        _flip(path, place)
        message = r"record 1, at byte 25, is corrupt: the checksum of its length does not match\. .* skip the \d+ by"
        with pytest.raises(CorruptRecordError, match=message):
            TFRecordSource(path, batch_size=4)
        assert _everything(TFRecordSource(path, batch_size=4, epochs=1, skip_corrupt=True)) == _records(1)


def test_a_cut_gzip_file_is_named(write: Write) -> None:
    path = write([os.urandom(1000) for _ in range(50)], compression="GZIP")
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is truncated\. Copy the file"):
        TFRecordSource(path, batch_size=4)
    assert 15 < TFRecordSource(path, batch_size=4, skip_corrupt=True).num_records < 35
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is truncated"):
        TFRecordSource(path, batch_size=4)
    Path(path).write_bytes(gzip.compress(b"x" * 1000)[:-20] + b"y" * 20)
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is corrupt|is truncated"):
        TFRecordSource(path, batch_size=4)


def test_concatenated_gzip_members_are_one_file(write: Write, tmp_path: Path) -> None:
    parts = [Path(write(_records(3, first), f"p{first}")).read_bytes() for first in (0, 3)]
    both = tmp_path / "both.gz"
    both.write_bytes(b"".join(map(gzip.compress, parts)))
    assert _everything(TFRecordSource(both, batch_size=2, epochs=1)) == _records(6)


def test_a_zstd_file_is_read_like_any_other(write: Write, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    parts = [Path(write(_records(300, first), f"p{first}")).read_bytes() for first in (0, 300)]
    path = tmp_path / "both.zst"
    path.write_bytes(b"".join(map(zstandard.compress, parts)))
    source = TFRecordSource(path, batch_size=7, epochs=1)
    assert _everything(source) == _records(600)
    assert_resumes_everywhere(TFRecordSource(path, batch_size=70, epochs=1, shuffle=True, seed=1))
    # pzstd begins with a frame that holds the size of the next one.
    parallel = tmp_path / "parallel.zst"
    parallel.write_bytes(b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + bytes(4) + path.read_bytes())
    assert _everything(TFRecordSource(parallel, batch_size=7, epochs=1)) == _records(600)
    cut = tmp_path / "cut.zst"
    cut.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is truncated\. Copy the file"):
        TFRecordSource(cut, batch_size=4)
    # The second frame was cut, so the records of the first one are there.
    assert 300 <= TFRecordSource(cut, batch_size=4, skip_corrupt=True).num_records < 600
    cut.write_bytes(path.read_bytes()[:30] + bytes(30) + path.read_bytes()[60:])
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is (corrupt|truncated)"):
        TFRecordSource(cut, batch_size=4)


def test_the_package_for_zstd_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "a.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    with pytest.raises(ImportError, match=r"a\.zst is compressed with zstd.*pip install 'staging-tf1\[zstd\]'"):
        TFRecordSource(path, batch_size=4)


def test_a_plain_file_that_begins_like_a_compressed_one_is_plain(write: Write) -> None:
    # The length 0x78 0x9c... of the first record equals zlib's magic number.
    length = 0x9C78
    assert zlib.compress(b"")[:2] == length.to_bytes(2, "little")
    assert TFRecordSource(write([b"z" * length]), batch_size=1).batch(0).tolist() == [b"z" * length]


def test_a_file_for_which_there_is_no_room_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.records"
    path.write_bytes(b"as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/x\.records'"):
            write_tfrecords({"x": np.random.default_rng(0).random((200, 1000))}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"as it was" and os.listdir(tmp_path) == ["x.records"]


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        RecordFileError, match=r"^no file matches '.*/none-\*' \(current folder: .*\)\. Check the path; gl"
    ):
        TFRecordSource(tmp_path / "none-*", batch_size=1)
    with pytest.raises(
        RecordFileError, match=r"^TFRecordSource got an empty list of files, expected at least one path or"
    ):
        TFRecordSource([], batch_size=1)


def test_files_without_records_are_named(write: Write) -> None:
    path = write([])
    with pytest.raises(RecordFileError, match=rf"^TFRecordSource found no records in {path}\.$"):
        TFRecordSource(path, batch_size=1)


def test_what_is_no_record_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are not records, whatever the name says.\n")
    message = r"notes\.txt: record 0, at byte 0, is corrupt: the checksum of its length does not match\."
    with pytest.raises(CorruptRecordError, match=message):
        TFRecordSource(path, batch_size=1)


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_file_may_vanish_once_it_is_open_but_not_before(write: Write, access: Any) -> None:
    path = write(_records(10))
    source = TFRecordSource(path, batch_size=4, epochs=1, access=access)
    unread = TFRecordSource(path, batch_size=4, epochs=1, access=access)
    source.batch(0)
    os.unlink(path)
    assert source.batch(1).tolist() == _records(10)[4:8]
    message = rf"^record file {path} can no longer be opened: No such file or directory\. It had 10 records when"
    with pytest.raises(RecordFileError, match=message):
        unread.batch(0)


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_file_that_is_cut_during_the_run_is_named(write: Write, access: Any) -> None:
    path = write(_records(10))
    source = TFRecordSource(path, batch_size=4, epochs=1, access=access)
    source.batch(2)
    os.truncate(path, 30)
    with pytest.raises(RecordFileError, match=rf"^record file {path} was truncated to 30 bytes while in use; it had"):
        source.batch(2)


def test_a_file_that_was_written_anew_is_named(write: Write) -> None:
    path = write(_records(10))
    source = TFRecordSource(path, batch_size=4)
    write(_records(30))
    with pytest.raises(RecordFileError, match=rf"^record file {path} has changed since the source was created: it"):
        source.batch(0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"features": {}, "parse_fn": len},
            ValueError,
            r"^TFRecordSource got both features= and parse_fn=\. features= parses in the graph, parse_fn= in Python",
        ),
        ({"parse_fn": len, "as_uint8": True}, ValueError, r"^TFRecordSource got both parse_fn= and as_uint8=\. "),
        ({"cache_bytes": 9, "as_uint8": True}, ValueError, r"^TFRecordSource got as_uint8= and cache_bytes=\. The pa"),
        ({"features": {}, "transform": lambda b, r: b}, ValueError, r"^TFRecordSource got features= and transform=\. "),
        ({"parse_fn": 3}, TypeError, r"^TFRecordSource got parse_fn=3, expected a function from bytes to arrays\.$"),
        (
            {"cache_bytes": -1},
            ValueError,
            r"^TFRecordSource got cache_bytes=-1, expected a whole number from 0 to 2\*\*63",
        ),
        ({"access": "ftp"}, ValueError, r"^TFRecordSource got access='ftp', expected 'mmap' or 'pread'\.$"),
        (
            {"batch_size": 0},
            ValueError,
            r"^TFRecordSource got batch_size=0, expected a whole number from 1 to 2147483647 \(",
        ),
        (
            {"shard": (10, 11)},
            ValueError,
            r"^TFRecordSource got shard=\(10, 11\), which would be empty: 10 records are divided",
        ),
    ],
)
def test_bad_arguments_are_refused(write: Write, options: dict[str, Any], error: Any, message: str) -> None:
    path = write(_records(10))
    with pytest.raises(error, match=message):
        TFRecordSource(path, **{"batch_size": 2, **options})


def test_records_that_parse_unlike_the_first_are_named(write: Write) -> None:
    source = TFRecordSource(write(_records(10)), batch_size=4, parse_fn=lambda r: {"x": np.zeros(len(r) % 9 + 1)})
    message = r"a\.tfrecord: record 1, at byte 25: parse_fn returned component 'x' as float64 \[.*\], but float"
    with pytest.raises(SpecError, match=message):
        TFRecordSource(source.files, batch_size=4, parse_fn=lambda r: {"x": np.zeros(len(r))}).batch(0)

    def other_keys(record: bytes) -> dict[str, int]:
        return {"first": 1} if record == _records(1)[0] else {"second": 2}

    with pytest.raises(SpecError, match=r"record 1, at byte 25: parse_fn: the batch lacks the key 'first' and has"):
        TFRecordSource(source.files, batch_size=4, parse_fn=other_keys).batch(0)


def test_the_parser_s_own_error_passes_through(write: Write) -> None:
    def fail(record: bytes) -> None:
        raise KeyError("no such label")

    with pytest.raises(KeyError, match=r"no such label"):
        flatten(TFRecordSource(write(_records(3)), batch_size=2, parse_fn=fail).batch(0))


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_of_one_length_come_as_a_matrix(write: Write, access: Any, compression: str) -> None:
    records = [bytes([number]) * 7 for number in range(20)]
    paths = [write(records[:13], "a", compression), write(records[13:], "b", compression)]
    source = TFRecordSource(paths, batch_size=6, epochs=1, as_uint8=True, shuffle=True, seed=4, access=access)
    assert source.spec == ArraySpec((None, 7), np.uint8, "serialized")
    for index in range(4):
        batch = source.batch(index)
        assert batch[:, 0].tolist() == batch[:, 6].tolist() == source.record_ids(index).tolist()
        assert is_aligned(batch)
    assert_deterministic(source)


def test_a_matrix_needs_one_length_and_sound_records(write: Write) -> None:
    odd = write([b"1234567", b"12345678"], "odd")
    with pytest.raises(SpecError, match=r"odd: record 1 has 8 bytes, but the first record has 7\. as_uint8=True requ"):
        TFRecordSource(odd, batch_size=2, as_uint8=True).batch(0)
    path = write([bytes([number]) * 7 for number in range(5)])
    TFRecordSource(path, batch_size=1)
    _flip(path, 23 + 12)
    with pytest.raises(CorruptRecordError, match=r"record 1, at byte 23, is corrupt: its checksum"):
        TFRecordSource(path, batch_size=5, as_uint8=True).batch(0)
    source = TFRecordSource(path, batch_size=5, as_uint8=True, skip_corrupt=True)
    assert source.batch(0)[:, 0].tolist() == [0, 2, 3, 4] and source.num_skipped == 1
