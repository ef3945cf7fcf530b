"""ArraySource: what it reads, the memory that it gives away, and how it rejects bad data."""

from __future__ import annotations

import collections
import doctest
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource, RaggedValue, aligned_empty
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import ArraySpec, flatten

Pair = collections.namedtuple("Pair", "image label")


def _arrays(n: int = 10) -> dict[str, Any]:
    return {"image": np.arange(n * 6, dtype=np.uint8).reshape(n, 2, 3), "label": np.arange(n, dtype=np.int32)}


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_is_the_rows_of_its_records(shuffle: bool) -> None:
    arrays = _arrays()
    source = ArraySource(arrays, batch_size=4, epochs=2, shuffle=shuffle, seed=3)
    for index in range(6):
        batch, ids = source.batch(index), source.record_ids(index)
        assert np.array_equal(batch["image"], arrays["image"][ids])
        assert np.array_equal(batch["label"], ids)
    assert sorted(source.record_ids(k).size for k in range(6)) == [2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize(
    "arrays",
    [
        np.arange(6),
        (np.arange(6), np.ones((6, 2))),
        Pair(np.arange(6), np.ones(6)),
        {"a": {"b": np.arange(6)}, "c": [np.ones(6), np.zeros(6)]},
    ],
)
def test_batches_have_the_structure_of_the_arrays(arrays: Any) -> None:
    source = ArraySource(arrays, batch_size=3)
    assert type(source.batch(0)) is type(arrays)
    assert type(source.spec) is type(arrays) or isinstance(source.spec, ArraySpec)
    assert all(len(leaf) == 3 for leaf in flatten(source.batch(1)))


def test_spec_leaves_the_batch_dimension_open_only_where_a_partial_batch_can_occur() -> None:
    assert ArraySource(_arrays(), batch_size=4).spec["image"] == ArraySpec((None, 2, 3), np.uint8, "image")
    assert ArraySource(_arrays(), batch_size=5).spec["image"].shape == (5, 2, 3)
    assert ArraySource(_arrays(), batch_size=4, drop_remainder=True).spec["image"].shape == (4, 2, 3)
    assert ArraySource(np.arange(4), batch_size=4, epochs=1, drop_remainder=True).num_batches == 1
    assert ArraySource(_arrays(), batch_size=4, across_epochs=True).spec["image"].shape == (4, 2, 3)
    assert ArraySource(_arrays(), batch_size=4, across_epochs=True, epochs=1).spec["image"].shape == (
        None,
        2,
        3,
    )


def test_what_is_given_away_is_fresh_and_aligned() -> None:
    for shuffle in (False, True):
        source = ArraySource(_arrays(), batch_size=3, shuffle=shuffle)
        first, again = source.batch(0), source.batch(0)
        for leaf, other in zip(flatten(first), flatten(again)):
            assert is_aligned(leaf) and not np.shares_memory(leaf, other) and leaf.flags.writeable
    assert source.gives_away and source.bytes_per_batch == 3 * (6 + 4)


def test_views_memmaps_and_fortran_order_are_read_as_they_are(tmp_path: Path) -> None:
    base = np.arange(60).reshape(10, 6)
    np.save(tmp_path / "a.npy", base)
    for array in (
        base[:, ::2],
        np.asfortranarray(base),
        np.load(tmp_path / "a.npy", mmap_mode="r"),
        base[::-1],
    ):
        source = ArraySource(array, batch_size=4, shuffle=True, seed=1)
        batch = source.batch(0)
        assert type(batch) is np.ndarray and is_aligned(batch)
        assert np.array_equal(batch, array[source.record_ids(0)])


def test_strings_come_as_bytes_objects() -> None:
    for array in (
        np.array([b"a", b"bc"]),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"], object),
        ["a", "bc"],
    ):
        source = ArraySource({"name": array}, batch_size=2)
        assert source.spec["name"] == ArraySpec((2,), np.dtype(object), "name")
        assert source.batch(0)["name"].tolist() == [b"a", b"bc"]
        assert source.bytes_per_batch is None


def test_a_seed_that_nobody_chose_is_told() -> None:
    source = ArraySource(np.arange(1000), batch_size=1000, shuffle=True)
    again = ArraySource(np.arange(1000), batch_size=1000, shuffle=True, seed=source.seed)
    assert source.seed_was_drawn and not again.seed_was_drawn
    assert np.array_equal(source.batch(3), again.batch(3))
    assert source.fingerprint() == again.fingerprint()
    for transform in (None, lambda batch: batch):
        plain = ArraySource(np.arange(3), batch_size=1, transform=transform)
        assert plain.seed is None and plain.fingerprint()["seed"] == -1


@pytest.mark.parametrize("size", [100, 100_000])
def test_memory_comes_back_when_the_last_view_of_it_is_gone(size: int) -> None:
    first = aligned_empty(size, np.uint8)
    view = first[10:][::2]
    place = first.ctypes.data
    del first
    others = [aligned_empty(size, np.uint8) for _ in range(10)]
    assert not any(np.shares_memory(view, other) for other in others)
    del view
    if size > 1 << 16:
        again = [aligned_empty(size, np.uint8) for _ in range(8)]
        assert place in [array.ctypes.data for array in again]


def test_threads_never_share_memory_that_came_back() -> None:
    together = threading.Barrier(4)

    def fill(mark: int) -> bool:
        together.wait()
        for _ in range(200):
            mine = aligned_empty(70_000, np.uint8)
            mine[:] = mark
            if not (mine == mark).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(fill, range(4)))


def test_a_transform_gets_fresh_arrays_and_its_own_random_numbers() -> None:
    arrays = _arrays()

    def brighten(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        batch["image"] += np.uint8(1)
        scaled = aligned_empty(batch["image"].shape, np.float32)
        np.multiply(batch["image"], np.float32(0.5), out=scaled)
        return {"image": scaled, "noise": rng.random(len(batch["label"])), "label": batch["label"]}

    source = ArraySource(arrays, batch_size=4, seed=1, transform=brighten)
    assert source.spec["image"] == ArraySpec((None, 2, 3), np.float32, "image")
    assert source.spec["noise"].dtype == np.float64
    batch = source.batch(1)
    assert np.array_equal(batch["image"], (arrays["image"][4:8] + 1) / np.float32(2))
    assert all(is_aligned(leaf) for leaf in flatten(batch))
    assert batch["noise"].tolist() == source.batch(1)["noise"].tolist() != source.batch(0)["noise"].tolist()
    assert source.shard(1, 2).batch(1)["noise"].tolist() != batch["noise"][:1].tolist()
    assert arrays["image"][0, 0, 0] == 0


def test_a_transform_that_keeps_its_buffer_does_no_harm_or_is_refused() -> None:
    plain = np.zeros(4, np.int64)

    def reuse(buffer: np.ndarray) -> Any:
        def transform(batch: Any, rng: Any) -> Any:
            buffer[...] = batch
            return buffer

        return transform

    source = ArraySource(np.arange(8), batch_size=4, transform=reuse(plain))
    first = source.batch(0)
    source.batch(1)
    assert first.tolist() == [0, 1, 2, 3]
    source = ArraySource(np.arange(8), batch_size=4, transform=reuse(aligned_empty(4, np.int64)))
    source.batch(0)
    message = r"^ArraySource: transform returned the memory of an earlier batch, .* new aligned_empty array"
    with pytest.raises(SpecError, match=message):
        source.batch(1)
    memory = aligned_empty(4, np.int64)
    source = ArraySource(np.arange(8), batch_size=4, transform=lambda batch: RaggedValue(memory, np.arange(5)))
    source.batch(0)
    with pytest.raises(SpecError, match=message):
        source.batch(1)


_TEN = np.arange(10)


def test_there_is_no_batch_beyond_the_end() -> None:
    source = ArraySource(_TEN, batch_size=4, epochs=2)
    with pytest.raises(IndexError, match=r"^ArraySource: batch 6 is out of range \(0 to 5\)\.$"):
        source.batch(6)
    assert [batch.tolist() for batch in source.batches(5)] == [[8, 9]]
    assert list(source.batches(6)) == []


def test_a_transform_that_returns_no_arrays_is_refused() -> None:
    source = ArraySource(_TEN, batch_size=4, transform=lambda batch, rng: {"x": None})
    message = r"^ArraySource: transform's component 'x' got a NoneType, expected an array\.$"
    with pytest.raises(SpecError, match=message):
        source.batch(0)


def test_the_shuffle_quality_example_says_what_it_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "shuffle_quality.py"
    spec = importlib.util.spec_from_file_location("shuffle_quality", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    ours, buffer, numpy_s = example.main(plot=str(tmp_path / "plot.png")).values()
    assert ours == pytest.approx(1, abs=0.01) == numpy_s
    assert buffer < 0.05
    assert "19,918" in capsys.readouterr().out  # as in docs/sources.md


def test_the_page_on_sources_is_true() -> None:
    page = Path(__file__).parents[2] / "docs" / "sources.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 10 and not failed
