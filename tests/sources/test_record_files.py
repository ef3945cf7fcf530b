"""TFRecordSource and ArrayRecordSource on files that other packages wrote: records, parsing, cache, and bad files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from staging_tf1.cli.main import main
from staging_tf1.errors import SpecError
from staging_tf1.sources import (
    ArrayRecordSource,
    CorruptRecordError,
    RecordFileError,
    TFRecordSource,
    write_array_records,
    write_tfrecords,
)
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import ArraySpec
from staging_tf1.testing import assert_deterministic, assert_resumes_everywhere, assert_shards_partition


def written_by_tensorflow(path: str, records: Any, compression: str = "") -> None:
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)


def written_by_array_record(path: str, records: Any, options: str = "group_size:1,uncompressed") -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(path, options)
    for record in records:
        writer.write(record)
    writer.close()


class Format(NamedTuple):
    """A format of record files: its source, the writer of the package that it comes from, and ours."""

    source: Any
    write: Callable[..., None]
    our_write: Any
    # How a message calls a file, and what the reader says of a record with a flipped bit.
    file: str
    flipped: str


FORMATS = {
    "TFRecord": Format(
        TFRecordSource, written_by_tensorflow, write_tfrecords, "record file", "its checksum does not match"
    ),
    "ArrayRecord": Format(
        ArrayRecordSource,
        written_by_array_record,
        write_array_records,
        "ArrayRecord file",
        r"Corrupted .* hash mismatch .*",
    ),
}
# How the other package writes a file.
WRITTEN = [
    *(("TFRecord", compression) for compression in ("", "GZIP", "ZLIB")),
    *(("ArrayRecord", options) for options in ("", "group_size:1", "group_size:1,uncompressed", "group_size:4")),
]
# Each format, and each access to a file.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "mmap": ("TFRecord", {}),
    "pread": ("TFRecord", {"access": "pread"}),
    "ArrayRecord": ("ArrayRecord", {}),
}


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    if request.param == "ArrayRecord":
        pytest.importorskip("array_record")
    return FORMATS[request.param]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Format, dict[str, Any]]:
    """A format, and the options of an access to its files."""
    name, options = KINDS[request.param]
    if name == "ArrayRecord":
        pytest.importorskip("array_record")
    return FORMATS[name], options


def records_of(count: int, first: int = 0) -> list[bytes]:
    return [f"record {number} ".encode() * (number % 5 + 1) for number in range(first, first + count)]


def written(form: Format, path: Path, records: Any, *options: str) -> str:
    form.write(str(path), records, *options)
    return str(path)


def everything(source: Any) -> list[bytes]:
    return [record for k in range(source.num_batches) for record in source.batch(k).tolist()]


def parsed(record: bytes) -> dict[str, Any]:
    number = int(record.split()[1])
    return {"id": np.int32(number), "image": np.full((2, 3), number, np.uint8), "name": record[:8]}


# What is read.


@pytest.mark.parametrize(("name", "options"), WRITTEN)
def test_records_are_what_the_other_package_wrote(tmp_path: Path, name: str, options: str) -> None:
    form = FORMATS[name]
    path = written(form, tmp_path / "a", records_of(23), options)
    for access in ("mmap", "pread") if name == "TFRecord" else (None,):
        given = {"access": access} if access else {}
        source = form.source(path, batch_size=5, epochs=1, **given)
        assert everything(source) == records_of(23)
        assert source.spec == ArraySpec((None,), np.dtype(object), "serialized")


def test_all_files_are_numbered_through_and_shuffled_together_alike(tmp_path: Path) -> None:
    pytest.importorskip("array_record")
    orders = []
    for name, form in FORMATS.items():
        paths = [tmp_path / f"{name}-{number}" for number in range(3)]
        for path, (count, first) in zip(paths, ((4, 0), (0, 0), (7, 4))):
            form.write(str(path), records_of(count, first))
        source = form.source(tmp_path / f"{name}-?", batch_size=3, epochs=2, seed=2, shuffle=True)
        assert source.num_records == 11 and source.files == list(map(str, paths))
        assert everything(source) == [records_of(11)[i] for k in range(8) for i in source.record_ids(k)]
        assert sorted(everything(source)) == sorted(records_of(11) * 2) != everything(source)
        in_order = form.source([paths[2], paths[0]], batch_size=11, epochs=1)
        assert everything(in_order) == records_of(7, first=4) + records_of(4)
        orders.append(everything(source))
    assert orders[0] == orders[1], "the order depends on the records, not on the format"


def test_every_promise_of_a_source_is_kept(form: Format, tmp_path: Path) -> None:
    paths = [written(form, tmp_path / "a", records_of(13)), written(form, tmp_path / "b", records_of(10, first=13))]

    def make() -> Any:
        return form.source(paths, batch_size=4, epochs=2, shuffle=True, seed=5, cache_bytes=300)

    assert_resumes_everywhere(make)
    assert_deterministic(make, threads=4)
    for n in (2, 5):
        assert_shards_partition(make, n)


def test_records_of_one_length_come_as_a_matrix(kind: tuple[Format, dict[str, Any]], tmp_path: Path) -> None:
    form, options = kind
    records = [bytes([number]) * 7 for number in range(20)]
    paths = [written(form, tmp_path / "a", records[:13]), written(form, tmp_path / "b", records[13:])]
    source = form.source(paths, batch_size=6, epochs=1, as_uint8=True, shuffle=True, seed=4, **options)
    assert source.spec == ArraySpec((None, 7), np.uint8, "serialized")
    for index in range(4):
        batch = source.batch(index)
        assert batch[:, 0].tolist() == batch[:, 6].tolist() == source.record_ids(index).tolist() and is_aligned(batch)
    assert_deterministic(source)
    odd = written(form, tmp_path / "odd", [b"1234567", b"12345678"])
    with pytest.raises(SpecError, match=r"odd: record 1 has 8 bytes, but the first record has 7\. as_uint8=True requ"):
        form.source(odd, batch_size=2, as_uint8=True, **options).batch(0)


# Parsing.


def test_parse_fn_makes_aligned_batches_which_a_transform_gets(form: Format, tmp_path: Path) -> None:
    path = written(form, tmp_path / "a", records_of(10))
    source = form.source(path, batch_size=4, parse_fn=parsed, shuffle=True, seed=3)
    assert source.spec["image"] == ArraySpec((None, 2, 3), np.uint8, "image")
    batch, ids = source.batch(0), source.record_ids(0)
    assert batch["id"].tolist() == ids.tolist() and batch["name"].tolist() == [f"record {i}".encode() for i in ids]
    assert batch["image"].shape == (4, 2, 3) and all(is_aligned(batch[key]) for key in ("id", "image"))
    doubled = form.source(path, batch_size=4, parse_fn=parsed, transform=lambda batch, rng: batch["id"] * 2)
    assert doubled.batch(1).tolist() == [8, 10, 12, 14] and doubled.spec.dtype == np.int32


def test_a_shard_parses_only_its_own_records_and_the_cache_keeps_as_many_as_fit(form: Format, tmp_path: Path) -> None:
    calls: list[int] = []

    def parse(record: bytes) -> np.ndarray:
        calls.append(int(record.split()[1]))
        return np.full(100, calls[-1], np.uint8)

    path = written(form, tmp_path / "a", records_of(20))
    shard = form.source(path, batch_size=5, epochs=1, parse_fn=parse, shuffle=True, seed=1).shard(1, 3)
    delivered = [row[0] for k in range(2) for row in shard.batch(k).tolist()]
    assert set(calls) == set(delivered) and len(delivered) == len(set(delivered)) == 7
    source = form.source(path, batch_size=20, parse_fn=parse, cache_bytes=650)
    source.batch(0)
    calls.clear()
    source.batch(1)
    assert source.cached_bytes == 600 and len(calls) == 14


@pytest.mark.parametrize("options", [{}, {"parse_fn": len}])
def test_a_batch_may_have_a_kept_record_several_times(form: Format, options: dict[str, Any], tmp_path: Path) -> None:
    path = written(form, tmp_path / "a", records_of(6))
    kept, fresh = (form.source(path, batch_size=8, across_epochs=True, **options, cache_bytes=n) for n in (9999, 0))
    for change in (
        lambda source: source,
        lambda source: source.select([5, 1, 5, 0]),
        lambda source: source.weighted([1, 1, 0, 0, 0, 0], seed=3),
    ):
        for k in range(2):
            assert change(kept).batch(k).tolist() == change(fresh).batch(k).tolist()


def test_records_that_parse_unlike_the_first_are_named_and_errors_pass_through(form: Format, tmp_path: Path) -> None:
    path = written(form, tmp_path / "a", records_of(3))
    at = r"a: record 1(, at byte 25)?: parse_fn"
    with pytest.raises(SpecError, match=rf"{at} returned component 'x' as float64 \[.*\], but float64"):
        form.source(path, batch_size=2, parse_fn=lambda record: {"x": np.zeros(len(record))}).batch(0)
    with pytest.raises(SpecError, match=rf"{at}: the batch lacks the key '9' and has"):
        form.source(path, batch_size=2, parse_fn=lambda record: {str(len(record)): 1}).batch(0)
    with pytest.raises(ZeroDivisionError):
        form.source(path, batch_size=2, parse_fn=lambda record: 1 // 0).batch(0)


# Damaged and changed files.


def flip(path: str, within: bytes) -> None:
    """Flip a bit of a record, and keep the time of the file."""
    data = bytearray(Path(path).read_bytes())
    data[data.index(within) + 2] ^= 1
    status = os.stat(path)
    Path(path).write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_corrupt_record_is_named_or_counted(form: Format, tmp_path: Path) -> None:
    path = written(form, tmp_path / "a", records_of(10))
    form.source(path, batch_size=1)
    flip(path, records_of(2)[1])
    source = form.source(path, batch_size=4, epochs=1)
    message = (
        rf"^{path}: record 1, at byte \d+, is corrupt: {form.flipped}\. Copy the file again, or use skip_corrupt=True "
        r"to skip and count such records\.$"
    )
    with pytest.raises(CorruptRecordError, match=message) as caught:
        source.batch(0)
    assert caught.value.path == path and 0 < caught.value.offset < 300
    assert form is not FORMATS["TFRecord"] or caught.value.offset == 25
    assert source.batch(1).tolist() == records_of(10)[4:8]
    skipping = form.source(path, batch_size=4, epochs=1, skip_corrupt=True)
    assert skipping.spec.shape == (None,)
    for _ in range(2):
        assert everything(skipping) == [record for i, record in enumerate(records_of(10)) if i != 1]
    assert skipping.num_skipped == 1


def test_a_matrix_without_its_corrupt_rows(form: Format, tmp_path: Path) -> None:
    path = written(form, tmp_path / "a", [bytes([number + 65]) * 7 for number in range(5)])
    form.source(path, batch_size=1)
    flip(path, b"BBBBBBB")
    with pytest.raises(CorruptRecordError, match=r"record 1, at byte \d+, is corrupt"):
        form.source(path, batch_size=5, as_uint8=True).batch(0)
    for files, wanted in ((path, ""), ([written(form, tmp_path / "b", [b"F" * 7, b"G" * 7]), path], "FG")):
        source = form.source(files, batch_size=7, epochs=1, as_uint8=True, skip_corrupt=True)
        assert bytes(source.batch(0)[:, 0]).decode() == f"{wanted}ACDE" and source.num_skipped == 1


def test_a_file_may_vanish_once_it_is_open_but_not_before(kind: tuple[Format, dict[str, Any]], tmp_path: Path) -> None:
    form, options = kind
    path = written(form, tmp_path / "a", records_of(10))
    source, unread = (form.source(path, batch_size=4, epochs=1, **options) for _ in range(2))
    source.batch(0)
    os.unlink(path)
    assert source.batch(1).tolist() == records_of(10)[4:8]
    with pytest.raises(RecordFileError, match=rf"^{form.file} {path} can no longer be opened: No such file or directo"):
        unread.batch(0)


def test_a_file_that_is_cut_or_written_anew_is_named(kind: tuple[Format, dict[str, Any]], tmp_path: Path) -> None:
    form, options = kind
    path = written(form, tmp_path / "a", [os.urandom(1000) for _ in range(200)])
    size = os.path.getsize(path)
    source, unread, other = (form.source(path, batch_size=4, epochs=1, **options) for _ in range(3))
    source.batch(49)
    os.utime(path, ns=(1, 1))
    changed = rf"^{form.file} {path} has changed since the source was created: it"
    message = (
        rf"{changed} still has {size} bytes, but was modified: on \d{{4}}-.* before, on 1970-01-01 .*\.000000001 n"
    )
    with pytest.raises(RecordFileError, match=message):
        unread.batch(0)
    os.truncate(path, 3000)
    with pytest.raises(RecordFileError, match=rf"^{form.file} {path} was truncated to 3000 bytes while in use; it had"):
        source.batch(49)
    with pytest.raises(RecordFileError, match=rf"{changed} .*3000"):
        other.batch(0)


def test_files_that_are_not_there_or_hold_nothing_are_named(form: Format, tmp_path: Path) -> None:
    name = form.source.__name__
    refused = {
        tmp_path / "none-*": r"^no file matches '.*/none-\*' \(current folder: .*\)\. Check the path; globs",
        (): rf"^{name} got an empty list of files, expected at least one path or",
        written(form, tmp_path / "empty", []): rf"^{name} found no records in {tmp_path}/empty\.$",
    }
    for files, message in refused.items():
        with pytest.raises(RecordFileError, match=message):
            form.source(list(files) if files == () else files, batch_size=1)


# Options that exclude each other. What each alone may be is in `test_arguments.py`.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"features": {}, "parse_fn": len}, r"both features= and parse_fn=\. features= parses in the graph, parse_fn= in"),
    ({"parse_fn": len, "as_uint8": True}, r"both parse_fn= and as_uint8=\. "),
    ({"cache_bytes": 9, "as_uint8": True}, r"as_uint8= and cache_bytes=\. The "),
    ({"features": {}, "transform": lambda batch: batch}, r"features= and transform=\. "),
    ({"shard": (10, 11)}, r"shard=\(10, 11\), which would be empty: 10 records are divided"),
    ({"local_cache_bytes": 5}, r"local_cache_bytes= without local_cache=\. Name the folder of the copies\."),
    ({"local_cache": __file__}, r"local_cache='.*', which is a file, expected the path of a folder\."),
]


@pytest.mark.parametrize(
    ("options", "message"), REFUSED, ids=lambda value: "-".join(value) if isinstance(value, dict) else ""
)
def test_options_that_exclude_each_other_are_refused(
    form: Format, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    path = written(form, tmp_path / "a", records_of(10))
    with pytest.raises(ValueError, match=rf"^{form.source.__name__} got {message}"):
        form.source(path, batch_size=2, **options)


def test_a_failed_write_leaves_what_was_there(form: Format, tmp_path: Path) -> None:
    def failing() -> Any:
        yield b"new"
        raise KeyError("no such label")

    path = form.our_write([b"old"], tmp_path / "a")[0]
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(KeyError, match="no such label"):
        form.our_write(failing(), path)
    with pytest.raises(OSError, match="No such file or directory"):
        form.our_write([b"one"], tmp_path / "none" / "a")
    with pytest.raises(ValueError, match="shards=2 needs arrays, whose length is known in adv"):
        form.our_write([b"one"], path, shards=2)
    with pytest.raises(SpecError, match="^got no records to write"):
        form.our_write({}, path)
    assert sorted(os.listdir(tmp_path)) == before and form.source(path, batch_size=1).batch(0).tolist() == [b"old"]


def test_arrays_become_examples_in_several_files(form: Format, tmp_path: Path) -> None:
    arrays = {
        "image": np.arange(60, dtype=np.uint8).reshape(10, 2, 3),
        "label": np.arange(-5, 5),
        "weight": np.linspace(0, 1, 20).reshape(10, 2),
        "name": np.array([f"ä{i}" for i in range(10)]),
        "odd": np.arange(10, dtype=np.uint8) % 2 == 1,
        "bytes": np.array([b"a" + bytes(i) for i in range(10)], object),
    }
    names = form.our_write(arrays, tmp_path / "d", shards=3)
    assert os.path.basename(names[0]) == "d-00000-of-00003"
    source = form.source(names, batch_size=10, epochs=1)
    assert [form.source(name, batch_size=1).num_records for name in names] == [3, 3, 4]
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weight": tf.io.FixedLenFeature([2], tf.float32),
        "name": tf.io.FixedLenFeature([], tf.string),
        "odd": tf.io.FixedLenFeature([], tf.int64),
        "bytes": tf.io.FixedLenFeature([], tf.string),
    }
    parsed = tf.io.parse_example(source.batch(0), features)
    assert np.array_equal(tf.io.decode_raw(parsed["image"], tf.uint8).numpy().reshape(10, 2, 3), arrays["image"])
    assert parsed["label"].numpy().tolist() == list(range(-5, 5))
    assert np.array_equal(parsed["weight"].numpy(), arrays["weight"].astype(np.float32))
    assert parsed["name"].numpy().tolist() == [f"ä{i}".encode() for i in range(10)]
    assert parsed["odd"].numpy().tolist() == [0, 1] * 5
    assert parsed["bytes"].numpy().tolist() == arrays["bytes"].tolist()


def test_the_command_writes_records_and_says_how_to_read_them(
    form: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / f"d.{'tfrecord' if form is FORMATS['TFRecord'] else 'array_record'}")
    np.savez(tmp_path / "d.npz", image=np.zeros((6, 2, 2), np.uint8), label=np.arange(6), name=[*"abcdef"])
    assert main(["index", "--write", out, "--from", str(tmp_path / "d.npz"), "--shards", "2"]) == 0
    text = capsys.readouterr().out
    assert f"wrote 6 records to 2 files, {out}-00000-of-00002 to {out}-00001-of-00002\n" in text
    assert f"staging.sources.{form.source.__name__}(files, batch_size=..., features={{\n" in text
    decoded = "# tf.io.decode_raw(x, tf.uint8), reshaped to [2, 2]"
    assert f"    'image': tf.io.FixedLenFeature([], tf.string),  {decoded}" in text
    for name, dtype in (("label", "int64"), ("name", "string")):
        assert f"    {name!r}: tf.io.FixedLenFeature([], tf.{dtype}),\n" in text
    # In groups of one record, so a shuffle of ArrayRecord files does not warn.
    assert form.source(out + "-?????-of-00002", batch_size=2, shuffle=True, seed=1).num_records == 6
