"""The files of a cache: where they cannot be written, where they are in the way, and what is found if they changed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import RunPython
from slow import with_slow

from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError
from staging_tf1.sources import CachedSource, cached
from staging_tf1.sources.columns.files import HEADER_BYTES, MappedArray
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


def records_of(cache: Path) -> list[Any]:
    source = CachedSource(cache, batch_size=1, epochs=1).pad()
    return [{name: values.tolist() for name, values in batch.items()} for batch in source.batches()]


def is_found(cache: Path) -> bool:
    """Whether `cache show --verify` finds the damage, and says what to do."""
    return main(["cache", "show", "--verify", str(cache)]) == 1


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


@pytest.mark.parametrize("name", SMALL)
def test_a_flipped_bit_of_a_small_file_is_found_when_the_cache_is_opened(cache: Path, name: str) -> None:
    path = cache / name
    size = path.stat().st_size
    head = 0 if name == "manifest.json" else HEADER_BYTES
    # All headers are compared in the same way, so the default run samples them.
    for places in (range(0, head, 1 if with_slow() else 97), range(head, size)):
        missed = [place for place in flips(path, places) if opens(cache)]
        assert not missed
    assert opens(cache)


@pytest.mark.parametrize("name", [*SMALL, *VALUES])
def test_verify_finds_a_flipped_bit(cache: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = cache / name
    size = path.stat().st_size
    for _ in flips(path, range(0, size, max(1, size // 60))):
        assert is_found(cache)
        assert name in capsys.readouterr().err
    assert not is_found(cache)


def numbers_in(node: Any) -> Iterator[tuple[Any, Any, int]]:
    """Yield all numbers of a manifest, as (container, key, number)."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(child, (dict, list)):
            yield from numbers_in(child)
        elif isinstance(child, int) and not isinstance(child, bool):
            yield node, key, child


EDITS: dict[str, Callable[[int], int]] = {
    "one more": lambda number: number + 1,
    "one less": lambda number: number - 1,
    "none": lambda number: 0 if number else 7,
    "a fifth": lambda number: number // 5 if number > 4 else number + 5,
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_number_of_the_manifest_is_found(cache: Path, edit: str) -> None:
    path = cache / "manifest.json"
    manifest = json.loads(path.read_text())
    numbers = list(numbers_in(manifest))
    for container, key, number in numbers:
        container[key] = EDITS[edit](number)
        path.write_text(json.dumps(manifest, indent=1))
        assert is_found(cache), f"{key!r}: {number} became {container[key]}"
        container[key] = number
    assert len(numbers) > 15


@pytest.mark.parametrize("field", ["checksum", "num_records", "built"])
def test_a_manifest_has_all_fields_and_no_others(cache: Path, field: str) -> None:
    path = cache / "manifest.json"
    path.write_text(path.read_text().replace(f'"{field}"', f'"{field}s"'))
    assert not opens(cache)


def test_a_changed_index_does_not_give_records_the_values_of_others(cache: Path) -> None:
    with open(cache / "000-text.strings.npy", "r+b") as file:
        file.seek(HEADER_BYTES + 8)
        file.write((3).to_bytes(8, "little"))
    message = r"'.*000-text\.strings\.npy' has another checksum .* Remove the cache to have it built again"
    with pytest.raises(RecordFileError, match=message):
        CachedSource(cache, batch_size=1)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_file_that_was_cut_is_named_when_the_cache_is_opened(cache: Path, name: str) -> None:
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


def test_another_header_is_named(cache: Path) -> None:
    with open(cache / "002-x.npy", "r+b") as file:
        file.seek(20)
        file.write(b"#")
    with pytest.raises(RecordFileError, match=r"'.*002-x\.npy' has another header than its cache says"):
        CachedSource(cache, batch_size=1)


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
def test_a_damaged_manifest_is_named_and_its_folder_left_alone(cache: Path, kind: str) -> None:
    path = cache / "manifest.json"
    path.write_text(MANIFESTS[kind](json.loads(path.read_text())))
    for act in (lambda: CachedSource(cache, batch_size=1), lambda: cached([1], cache, batch_size=1)):
        with pytest.raises(RecordFileError, match=r"'.*manifest\.json' should be the manifest of a cache, but is not"):
            act()
    assert len(os.listdir(cache)) > len(COLUMNS)
