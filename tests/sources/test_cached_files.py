"""When a cache is built again, what a failed build leaves, and what is found if its files were changed."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow import with_slow

from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached

HEADER_BYTES = 4096


def values(path: Path) -> Any:
    return CachedSource(path, batch_size=5).batch(0).tolist()


def never() -> Iterator[int]:
    raise AssertionError("the data was read")
    yield 1


# Data that changes.

CHANGES: dict[str, tuple[Any, dict[str, Any], Any, dict[str, Any], str]] = {
    "version": (np.arange(5), {"version": "a"}, np.arange(5), {"version": "b"}, "version: a in the cache, b now"),
    "no version": (np.arange(5), {"version": 1}, np.arange(5), {}, "version: 1 in the cache, none now"),
    "odd version": (np.arange(5), {"version": "a"}, np.arange(5), {"version": "\ud800"}, r".*, '\\ud800' now"),
    "length": (np.arange(5), {}, np.arange(6), {}, "elements: 5 in the cache, 6 now"),
    "dtype": (np.arange(5), {}, np.arange(5.0), {}, r"spec: record: int64 \[\] in the cache, record: float64 \[\] now"),
    "map-style": ([1, 2], {}, [1, 2, 3], {}, "elements: 2 in the cache, 3 now"),
    "limit": (np.arange(5), {"limit": 2}, np.arange(5), {"limit": 3}, "limit: 2 in the cache, 3 now"),
    "batched": ([[1, 2]], {"batched": True}, [[1, 2]], {}, "batched: True in the cache, False now"),
    "several": (np.arange(5), {"version": 1}, np.arange(6), {}, "version: .*; elements: 5 in the cache, 6 now"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_named_and_the_cache_built_again(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, had, after, has, message = CHANGES[kind]
    path = tmp_path / "cache"
    was = cached(before, path, batch_size=1, **had).num_records
    with pytest.raises(RecordFileError, match=rf"is out of date: {message}\. Build it again with if_changed='rebuild'"):
        cached(after, path, batch_size=1, if_changed="error", **has)
    assert CachedSource(path, batch_size=1).num_records == was
    made = cached(after, path, batch_size=1, **has)
    assert re.search(f"building the cache .* again: {message}", caplog.text)
    assert made.num_records == CachedSource(path, batch_size=1).num_records
    cached(after, path, batch_size=1, if_changed="error", **has)


def test_a_version_is_a_string_or_a_number_alike(tmp_path: Path) -> None:
    cached(lambda: iter([1]), tmp_path / "cache", batch_size=1, version="3")
    for version in (3, np.int64(3)):
        cached(never, tmp_path / "cache", batch_size=1, version=version)


def test_files_that_change_are_named(tmp_path: Path) -> None:
    path, files = tmp_path / "cache", [tmp_path / f"{name}.csv" for name in "abc"]
    for file in files:
        file.write_text("1")
    options: dict[str, Any] = dict(batch_size=1, files=tmp_path / "*.csv", if_changed="error")
    for data in (lambda: iter([1]), never):
        cached(data, path, **options)
    files[0].write_text("22")
    os.utime(files[1], ns=(1, 1))
    files[2].rename(tmp_path / "d.csv")
    message = (
        r"'.*a\.csv': 1 bytes when the cache was built, 2 now; file '.*b\.csv': modified after the cache was built; "
        r"file '.*c\.csv': not listed any more; file '.*d\.csv': new\."
    )
    with pytest.raises(RecordFileError, match=message):
        cached(never, path, **options)
    with pytest.raises(RecordFileError, match=r"no file matches '.*x\*\.csv'"):
        cached(never, path, batch_size=1, files=str(tmp_path / "x*.csv"))


def test_a_cache_of_another_version_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cache"
    cached(np.arange(5), path, batch_size=1)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({"format": manifest["format"], "version": 99}))
    message = f"format version 99, and this release reads version {manifest['version']}"
    with pytest.raises(RecordFileError, match=f"is a cache of {message}"):
        CachedSource(path, batch_size=1)
    with pytest.raises(RecordFileError, match=f"is out of date: {message}"):
        cached(np.arange(5), path, batch_size=1, if_changed="error")
    assert cached(np.arange(5), path, batch_size=5).batch(0).tolist() == [0, 1, 2, 3, 4]
    assert message in caplog.text


# Data that fails, and disks and paths.


@pytest.mark.parametrize("error", [KeyError("halfway"), OSError("the network is down"), KeyboardInterrupt()])
def test_data_that_fails_halfway_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    class Failing:
        works = False

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, i: int) -> int:
            if i == 500 and not self.works:
                raise error
            return i * 10 if self.works else i

    path, data = tmp_path / "cache", Failing()
    for had in ([], [0, 1, 2, 3, 4]):
        with pytest.raises(type(error)) as caught:
            cached(data, path, batch_size=1)
        assert caught.value is error and caught.traceback[-1].name == "__getitem__"
        assert os.listdir(tmp_path) == (["cache"] if had else [])
        cached(np.arange(5), path, batch_size=1)
        assert values(path) == [0, 1, 2, 3, 4]
    # The code may have been changed, so no record of the failed build is kept.
    data.works = True
    assert cached(data, path, batch_size=1000).batch(0).tolist() == list(range(0, 10_000, 10))


@pytest.mark.parametrize("data", [np.zeros((1000, 1000)), lambda: (np.zeros(1000) for _ in range(1000))])
def test_a_file_that_becomes_too_large_leaves_what_was_there(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "cache"
    cached(np.arange(5), path, batch_size=5)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    message = (
        r"^cannot write the cache '.*cache': File too large \(\d+ MiB are free\)\. What was at that path before is"
    )
    try:
        with pytest.raises(RecordFileError, match=message) as caught:
            cached(data, path, batch_size=1, version=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == ["cache"] and values(path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_what_was_there(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "cache"
    cached(np.arange(5), path, batch_size=5)
    monkeypatch.setattr(os, "fsync", full)
    message = rf"^cannot write the cache '.*cache': {os.strerror(number)} \(\d+ MiB are free\)\. What was at that path"
    with pytest.raises(RecordFileError, match=message) as caught:
        cached(np.arange(9), path, batch_size=1, version=2)
    assert caught.value.errno == number
    assert os.listdir(tmp_path) == ["cache"] and values(path) == [0, 1, 2, 3, 4]


def test_paths_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("x")
    table = {
        "file": r"^cached\(\) got path='.*file', which is not a folder\. Choose another path\.$",
        "file/a/b/cache": r"^cached\(\) cannot use path='.*/file/a/b/cache': Not a directory\. Choose another path\.$",
        "folder": r"^'.*folder' is a folder without a manifest\.json, so it is not a cache\. Choose another path\.$",
        "y" * 256: r"^cached\(\) cannot use path='.*': File name too long\. Choose another path\.$",
        "y" * 250: r"^cached\(\) cannot use path='.*': File name too long\. Choose another path\.$",
    }
    for name, message in table.items():
        with pytest.raises(RecordFileError, match=message):
            cached(never, tmp_path / name, batch_size=1)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    (tmp_path / "empty").mkdir()
    assert cached(np.arange(5), tmp_path / "empty", batch_size=5).batch(0).tolist() == [0, 1, 2, 3, 4]
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"got path='\.', expected another folder than the current one"):
        cached(never, ".", batch_size=1)
    assert values(Path(".")) == [0, 1, 2, 3, 4]


def test_a_cache_may_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    for path in (tmp_path / "link", f"{tmp_path}/here/", tmp_path / "here" / ".." / "here"):
        cached(np.arange(5), path, batch_size=1, version=str(path))
        assert values(tmp_path / "here") == values(tmp_path / "link") == [0, 1, 2, 3, 4]
        assert sorted(os.listdir(tmp_path)) == ["here", "link"]


def test_files_that_are_no_part_of_the_cache_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outer = tmp_path / "cache"
    cached([1, 2], outer, batch_size=1)
    cached([3, 4], outer / "val", batch_size=1)

    def noting() -> Iterator[int]:
        (outer / "notes.txt").write_text("precious")
        yield from [5, 6]

    cached(noting, outer, batch_size=1)
    assert values(outer) == [5, 6] and values(outer / "val") == [3, 4]
    assert (outer / "notes.txt").read_text() == "precious" and os.listdir(tmp_path) == ["cache"]
    assert main(["cache", "remove", str(outer)]) == 1
    assert "has 'notes.txt', which is not part of the cache, so nothing was removed" in capsys.readouterr().err
    assert values(outer) == [5, 6] and values(outer / "val") == [3, 4]


@pytest.fixture
def as_another_user() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # By a path without the folders above, which belong to this user alone.
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    cached(np.arange(3), "cache", batch_size=1)
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked").chmod(0o555)
    (tmp_path / "cache" / "000.npy").chmod(0)
    return tmp_path


def test_what_may_not_be_written_or_read_is_named(reader: Path, as_another_user: None) -> None:
    with pytest.raises(RecordFileError, match=r"^cannot .*locked/cache'.*: Permission denied"):
        cached(never, "locked/cache", batch_size=1)
    message = r"^cannot read .*000\.npy', a file of a cache: Permission denied\. Give this user read access"
    with pytest.raises(RecordFileError, match=message):
        CachedSource("cache", batch_size=1)


# Files that are changed afterwards: any byte, and any number of the manifest.

SMALL = ["manifest.json", "000-text.strings.npy", "001-tokens.starts.npy", "001-tokens.shapes.npy"]
VALUES = ["000-text.npy", "001-tokens.npy", "002-x.npy"]
COLUMNS = [*SMALL[1:], *VALUES]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "cache"
    records = [{"x": i, "text": "abc" * (i % 3), "tokens": np.arange(i)} for i in range(50)]
    cached(records, path, batch_size=1, version=3)
    return path


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "cache"))


def opens(cache: Path) -> bool:
    try:
        CachedSource(cache, batch_size=1)
    except RecordFileError as error:
        assert str(cache) in str(error), "the message names the file"
        assert any(cure in str(error) for cure in ("Remove the cache", "delete it", "Build it again")), str(error)
        return False
    return True


def flips(path: Path, places: range) -> Iterator[int]:
    """Flip a bit at each of `places` in turn, and put the byte back."""
    chosen = random.Random(path.name)
    whole = path.read_bytes()
    with open(path, "r+b", buffering=0) as file:
        for place in places:
            os.pwrite(file.fileno(), bytes([whole[place] ^ 1 << chosen.randrange(8)]), place)
            yield place
            os.pwrite(file.fileno(), whole[place : place + 1], place)


@pytest.mark.parametrize("name", [*SMALL, *VALUES])
@pytest.mark.matrix_cases(r"(?!(manifest\.json|001-tokens\.npy)$).*")
def test_a_flipped_bit_is_found(cache: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = cache / name
    size = path.stat().st_size
    for _ in flips(path, range(0, size, max(1, size // 60))):
        assert main(["cache", "show", "--verify", str(cache)]) == 1
        assert name in capsys.readouterr().err
    assert main(["cache", "show", "--verify", str(cache)]) == 0
    head = 0 if name == "manifest.json" else HEADER_BYTES
    # All headers are compared in the same way, so the default run samples them. Values are not compared.
    for places in (range(0, head, 1 if with_slow() else 97), range(head, size if name in SMALL else head)):
        assert not [place for place in flips(path, places) if opens(cache)]
    assert opens(cache)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_file_that_was_cut_is_named(cache: Path, name: str) -> None:
    file = cache / name
    size = file.stat().st_size
    for cut in (size - 1, 10, 0):
        os.truncate(file, cut)
        with pytest.raises(RecordFileError, match=rf"'.*{name}' has {cut} bytes, expected {size}: the file was cut"):
            CachedSource(cache, batch_size=1)
    file.unlink()
    with pytest.raises(
        RecordFileError, match=rf"cannot read '.*{name}', a file of a cache: No such file.*\. Remove the cache to"
    ):
        CachedSource(cache, batch_size=1)


def test_a_file_that_is_cut_while_it_is_read_is_named(cache: Path) -> None:
    source = CachedSource(cache, batch_size=1).pad()
    source.batch(0)
    os.truncate(cache / "002-x.npy", 4096)
    with pytest.raises(RecordFileError, match=r"'.*002-x\.npy' has 4096 bytes, expected 4496: the file was cut"):
        source.batch(1)


MANIFESTS: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[:-3],
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
    "other format": lambda text: text.replace("staging_tf1 cache", "npz"),
    "no version": lambda text: text.replace('"version": 2', '"version": "2"', 1),
    "no checksum": lambda text: text.replace('"checksum"', '"sum"'),
    "other number": lambda text: text.replace('"num_records": 50', '"num_records": 49'),
    "a path outside": lambda text: text.replace("000-text.npy", "../secret.npy"),
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_damaged_manifest_is_named_and_its_folder_left_alone(cache: Path, kind: str) -> None:
    path = cache / "manifest.json"
    text = path.read_text()
    path.write_text(MANIFESTS[kind](text))
    assert path.read_text() != text
    for act in (lambda: CachedSource(cache, batch_size=1), lambda: cached([1], cache, batch_size=1)):
        with pytest.raises(RecordFileError, match=r"'.*manifest\.json' should be the manifest of a cache, but is not"):
            act()
    assert len(os.listdir(cache)) > len(COLUMNS)
