"""sources.cached where its files cannot be written, or were changed afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import RunPython

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns.files import MappedArray
from staging_tf1.sources.columns.folder import opened, remove

CHILD = Path(__file__).parents[1] / "support" / "cached_child.py"


def values(path: Path) -> Any:
    return CachedSource(path, batch_size=5).batch(0).tolist()


def never() -> Iterator[int]:
    raise AssertionError("the data was read")
    yield 1


# Disks and paths.


def _check_full(done: Any, errno: int, reason: str) -> None:
    assert done.returncode == 0, done.stderr
    *errors, after = map(json.loads, done.stdout.splitlines())
    assert len(errors) == 2
    for error in errors:
        assert error["errno"] == errno
        message = (
            rf"^cached\(\) cannot write the cache '.*cache': {reason} \(\d+ MiB are free\)\. What was at that path"
        )
        assert re.search(message, error["text"]), error["text"]
    assert after == {"left": ["cache"], "before": [0, 1, 2, 3, 4]}


def test_a_file_that_becomes_too_large_leaves_what_was_there(tmp_path: Path, run_python: RunPython) -> None:
    _check_full(run_python(CHILD, "too_large", tmp_path / "f" / "cache", 1_000_000), 27, "File too large")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, run_python: RunPython) -> None:
    # A disk of its own, in a namespace of its own.
    mount = f"mount -t tmpfs -o size=400k tmpfs {tmp_path} && exec "
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "sh", "-c", mount + "true"]).returncode:
        pytest.skip("this machine does not allow a small disk of its own")
    code = (
        "import subprocess, sys\n"
        f"sys.exit(subprocess.call(['unshare', '-rm', 'sh', '-c', {mount!r} + '\"$0\" \"$@\"', sys.executable, "
        f"{str(CHILD)!r}, 'too_large', {str(tmp_path / 'cache')!r}, '0']))"
    )
    _check_full(run_python("-c", code), 28, "No space left on device")


def test_paths_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("x")
    table = {
        "file": r"^cached\(\) got path='.*file', which is not a folder\. Choose another path\.$",
        "file/cache": r"^cached\(\) cannot write the cache .*file/cache.: its parent '.*/file' is a file, not a folder",
        "file/a/b/cache": r"^cached\(\) cannot write .*/cache': its parent '.*/file' is a file, not a folder",
        "folder": r"^'.*folder' is a folder without a manifest\.json, so it is not a cache\. Choose another path\.$",
        "y" * 256: r"^cached\(\) cannot use path='.*': File name too long\. Choose another path\.$",
        "/".join(["y" * 200] * 25): r"^cached\(\) cannot use path='.*': File name too long\. Choose another path\.$",
    }
    for name, message in table.items():
        with pytest.raises(RecordFileError, match=message):
            cached(never, tmp_path / name, batch_size=1)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    (tmp_path / "empty").mkdir()
    assert cached(np.arange(5), tmp_path / "empty", batch_size=5).batch(0).tolist() == [0, 1, 2, 3, 4]


def test_a_rebuild_keeps_files_that_are_no_part_of_the_cache(tmp_path: Path) -> None:
    outer = tmp_path / "cache"
    cached([1, 2], outer, batch_size=1)
    cached([3, 4], outer / "val", batch_size=1)
    cached([5, 6], outer, batch_size=1, version=2)
    assert values(outer) == [5, 6] and values(outer / "val") == [3, 4]
    with pytest.raises(RecordFileError, match=r"the folder '.*cache' has 'val', which is not part of the cache"):
        remove(str(outer))
    assert values(outer) == [5, 6] and values(outer / "val") == [3, 4]
    remove(str(outer / "val"))
    remove(str(outer))
    assert os.listdir(tmp_path) == []


def test_a_file_that_comes_while_a_cache_is_built_again_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    cached([1, 2], path, batch_size=1)

    def noting() -> Iterator[int]:
        (path / "notes.txt").write_text("precious")
        yield 3

    cached(noting, path, batch_size=1)
    assert (path / "notes.txt").read_text() == "precious" and values(path) == [3]


def test_a_cache_may_be_behind_a_link_but_not_replace_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    for path in (tmp_path / "link", f"{tmp_path}/here/", tmp_path / "here" / ".." / "here"):
        cached(np.arange(5), path, batch_size=1, version=str(path))
        assert values(tmp_path / "here") == values(tmp_path / "link") == [0, 1, 2, 3, 4]
        assert sorted(os.listdir(tmp_path)) == ["here", "link"]
    monkeypatch.chdir(tmp_path / "here")
    assert values(Path(".")) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"got path='\.', expected another folder than the current one"):
        cached(never, ".", batch_size=1)


def test_a_path_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(0o500)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(RecordFileError, match=r"^cached\(\) cannot .*locked/cache'.*: Permission denied"):
            cached(never, tmp_path / "locked" / "cache", batch_size=1)
    finally:
        os.seteuid(user)
    assert os.listdir(tmp_path / "locked") == []


@pytest.mark.parametrize("name", ["manifest.json", "000.npy", ""])
def test_a_cache_that_may_not_be_read_names_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # By a path without the folders above, which belong to this user alone.
    monkeypatch.chdir(tmp_path)
    cached(np.arange(3), "cache", batch_size=1)
    file = opened("cache").files[0]
    os.chmod(tmp_path / "cache" / name, 0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(RecordFileError, match=r"^cannot read .*: Permission denied\. Give this user read access"):
            MappedArray("cache", file, verified=False) if name == "000.npy" else opened("cache")
    finally:
        os.seteuid(user)
        os.chmod(tmp_path / "cache" / name, 0o700)


# Files that are changed afterwards.


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    cached([{"x": i, "text": "abc", "tokens": np.arange(i)} for i in range(5)], tmp_path / "cache", batch_size=1)
    return tmp_path / "cache"


FILES = ["000-text.npy", "000-text.strings.npy", "001-tokens.starts.npy", "001-tokens.shapes.npy", "002-x.npy"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_is_named_when_the_cache_is_opened(whole: Path, name: str) -> None:
    file = whole / name
    size = file.stat().st_size
    for cut in (size - 1, 10, 0):
        os.truncate(file, cut)
        with pytest.raises(RecordFileError, match=rf"'.*{name}' has {cut} bytes, expected {size}: the file was cut"):
            CachedSource(whole, batch_size=1)
    file.unlink()
    with pytest.raises(
        RecordFileError, match=rf"cannot read '.*{name}', a file of a cache: No such file.*\. Remove the cache to"
    ):
        CachedSource(whole, batch_size=1)


def test_a_file_that_is_cut_while_it_is_read_is_named(whole: Path) -> None:
    source = CachedSource(whole, batch_size=1).pad()
    source.batch(0)
    os.truncate(whole / "002-x.npy", 4096)
    with pytest.raises(RecordFileError, match=r"'.*002-x\.npy' has 4096 bytes, expected 4136: the file was cut"):
        source.batch(1)


def test_a_cache_that_is_built_again_stays_readable_for_those_that_have_it_open(tmp_path: Path) -> None:
    old = cached(np.arange(5), tmp_path / "cache", batch_size=5)
    cached(np.arange(100, 200), tmp_path / "cache", batch_size=5)
    assert old.batch(0).tolist() == [0, 1, 2, 3, 4]
    assert values(tmp_path / "cache") == [100, 101, 102, 103, 104]


def test_another_header_is_named(whole: Path) -> None:
    with open(whole / "002-x.npy", "r+b") as file:
        file.seek(20)
        file.write(b"#")
    with pytest.raises(RecordFileError, match=r"'.*002-x\.npy' has another header than its cache says"):
        CachedSource(whole, batch_size=1)


def _edited(**changes: Any) -> Any:
    def edit(manifest: dict[str, Any]) -> str:
        return json.dumps({**manifest, **changes})

    return edit


def _with_file(name: str) -> Any:
    def edit(manifest: dict[str, Any]) -> str:
        manifest["components"][0]["files"]["values"][0] = name
        return json.dumps(manifest)

    return edit


MANIFESTS: dict[str, Any] = {
    "cut": lambda manifest: json.dumps(manifest)[:-3],
    "empty": lambda manifest: "",
    "a list": lambda manifest: "[]",
    "deep": lambda manifest: "[" * 100_000,
    "other format": _edited(format="npz"),
    "no version": _edited(version="1"),
    "no components": _edited(components=[]),
    "no structure": _edited(structure={}),
    "other structure": _edited(structure={"tuple": [0, 0, 1]}),
    "no records": _edited(num_records=0),
    "a path outside": _with_file("../secret.npy"),
    "no column": _with_file("secret.txt"),
    "a number as file": _with_file(3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_damaged_manifest_is_named_and_its_folder_left_alone(whole: Path, kind: str) -> None:
    path = whole / "manifest.json"
    path.write_text(MANIFESTS[kind](json.loads(path.read_text())))
    for act in (lambda: CachedSource(whole, batch_size=1), lambda: cached([1], whole, batch_size=1)):
        with pytest.raises(RecordFileError, match=r"'.*manifest\.json' should be the manifest of a cache, but is not"):
            act()
    assert len(os.listdir(whole)) > len(FILES)


def test_a_version_that_no_terminal_can_show_is_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for version in ("a", "\ud800"):
        cached(np.arange(4), tmp_path / "cache", batch_size=2, version=version, progress=False)
    assert "version: a in the cache, '\\ud800' now" in caplog.text
