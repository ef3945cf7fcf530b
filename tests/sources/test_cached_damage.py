"""A cache of which any byte, or any number of its manifest, was changed after it was built."""

from __future__ import annotations

import json
import os
import random
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
from staging_tf1.sources.columns.files import HEADER_BYTES

SMALL = ["manifest.json", "000-text.strings.npy", "001-tokens.starts.npy", "001-tokens.shapes.npy"]
VALUES = ["000-text.npy", "001-tokens.npy", "002-x.npy"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "cache"
    records = [{"x": i, "text": "abc" * (i % 3), "tokens": np.arange(i)} for i in range(50)]
    cached(records, path, batch_size=1, version=3)
    return path


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "cache"))


def without_checksum(cache: Path) -> None:
    """Make the manifest one of the releases before checksums."""
    path = cache / "manifest.json"
    fields = json.loads(path.read_text())
    del fields["checksum"]
    path.write_text(json.dumps(fields, indent=1))


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


def test_a_cache_of_a_release_without_checksums_has_the_same_records(cache: Path) -> None:
    before, fingerprint = records_of(cache), CachedSource(cache, batch_size=1).fingerprint()
    without_checksum(cache)
    assert records_of(cache) == before
    assert CachedSource(cache, batch_size=1).fingerprint() == fingerprint
    assert not is_found(cache)
    data: Any = [{"x": 0, "text": "", "tokens": np.arange(0)}] * 50
    assert cached(data, cache, batch_size=1, version=3, if_changed="error").num_records == 50


def test_a_changed_index_does_not_give_records_the_values_of_others(cache: Path) -> None:
    with open(cache / "000-text.strings.npy", "r+b") as file:
        file.seek(HEADER_BYTES + 8)
        file.write((3).to_bytes(8, "little"))
    message = r"'.*000-text\.strings\.npy' has another checksum .* Remove the cache to have it built again"
    with pytest.raises(RecordFileError, match=message):
        CachedSource(cache, batch_size=1)
