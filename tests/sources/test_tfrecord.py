"""What only TFRecord files have: compression, lengths between the records, and an end that may be cut."""

from __future__ import annotations

import gzip
import os
import resource
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from test_record_files import FORMATS, everything, records_of, written

from staging_tf1.sources import CorruptRecordError, TFRecordSource, write_tfrecords
from staging_tf1.testing import assert_resumes_everywhere

FORMAT = FORMATS["TFRecord"]


def test_a_cut_file_is_named_or_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = written(FORMAT, tmp_path / "a", records_of(10))
    size = os.path.getsize(path)
    os.truncate(path, size - 3)
    message = rf"^{path}: record 9, at byte \d+, is corrupt: the file ends 3 bytes before the end"
    with pytest.raises(CorruptRecordError, match=message):
        TFRecordSource(path, batch_size=4)
    source = TFRecordSource(path, batch_size=4, epochs=1, skip_corrupt=True)
    assert everything(source) == records_of(9) and source.lost_bytes > 0
    with pytest.raises(CorruptRecordError, match=message):  # although its index exists
        TFRecordSource(path, batch_size=4)


def test_a_broken_length_is_found_where_it_stands(tmp_path: Path) -> None:
    for place in (25, 31):  # the lowest and a high byte of the length of record 1
        path = Path(written(FORMAT, tmp_path / f"broken-{place}", records_of(10)))
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
        message = r"record 1, at byte 25, is corrupt: the checksum of its length does not match\. .* skip the \d+ by"
        with pytest.raises(CorruptRecordError, match=message):
            TFRecordSource(path, batch_size=4)
        assert everything(TFRecordSource(path, batch_size=4, epochs=1, skip_corrupt=True)) == records_of(1)


def test_a_cut_gzip_file_is_named(tmp_path: Path) -> None:
    path = written(FORMAT, tmp_path / "a", [os.urandom(1000) for _ in range(50)], "GZIP")
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is truncated\. Copy the file"):
        TFRecordSource(path, batch_size=4)
    assert 15 < TFRecordSource(path, batch_size=4, skip_corrupt=True).num_records < 35
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is truncated"):
        TFRecordSource(path, batch_size=4)
    Path(path).write_bytes(gzip.compress(b"x" * 1000)[:-20] + b"y" * 20)
    with pytest.raises(CorruptRecordError, match=r"the compressed stream is corrupt|is truncated"):
        TFRecordSource(path, batch_size=4)


def test_concatenated_gzip_members_are_one_file(tmp_path: Path) -> None:
    parts = [Path(written(FORMAT, tmp_path / f"{first}", records_of(3, first))).read_bytes() for first in (0, 3)]
    both = tmp_path / "both.gz"
    both.write_bytes(b"".join(map(gzip.compress, parts)))
    assert everything(TFRecordSource(both, batch_size=2, epochs=1)) == records_of(6)


def test_a_zstd_file_is_read_like_any_other(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    parts = [Path(written(FORMAT, tmp_path / f"{first}", records_of(300, first))).read_bytes() for first in (0, 300)]
    path = tmp_path / "both.zst"
    path.write_bytes(b"".join(map(zstandard.compress, parts)))
    source = TFRecordSource(path, batch_size=7, epochs=1)
    assert everything(source) == records_of(600)
    assert_resumes_everywhere(TFRecordSource(path, batch_size=70, epochs=1, shuffle=True, seed=1))
    # pzstd begins with a frame that holds the size of the next one.
    parallel = tmp_path / "parallel.zst"
    parallel.write_bytes(b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + bytes(4) + path.read_bytes())
    assert everything(TFRecordSource(parallel, batch_size=7, epochs=1)) == records_of(600)
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


def test_a_plain_file_that_begins_like_a_compressed_one_is_plain(tmp_path: Path) -> None:
    # The length 0x78 0x9c... of the first record equals zlib's magic number.
    length = 0x9C78
    assert zlib.compress(b"")[:2] == length.to_bytes(2, "little")
    path = written(FORMAT, tmp_path / "a", [b"z" * length])
    assert TFRecordSource(path, batch_size=1).batch(0).tolist() == [b"z" * length]


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


def test_what_is_no_record_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are not records, whatever the name says.\n")
    message = r"notes\.txt: record 0, at byte 0, is corrupt: the checksum of its length does not match\."
    with pytest.raises(CorruptRecordError, match=message):
        TFRecordSource(path, batch_size=1)
