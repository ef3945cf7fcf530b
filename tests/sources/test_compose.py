"""Sources made of the records of other sources: take, skip, split, concatenate, zip_records, and all of them nested."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1 import testing
from staging_tf1.sources import (
    ArraySource,
    MapSource,
    RecordSource,
    concatenate,
    zip_records,
)
from staging_tf1.spec import ArraySpec, flatten


def numbered(first: int = 0, count: int = 10, **options: Any) -> ArraySource:
    """Records that are consecutive numbers."""
    return ArraySource(np.arange(first, first + count), **{**dict(batch_size=4, epochs=1), **options})


def epoch(source: RecordSource, number: int = 0) -> list[Any]:
    """The records of one epoch, in order."""
    per_epoch = source.batches_per_epoch
    assert per_epoch is not None
    batches = [source.batch(k) for k in range(number * per_epoch, (number + 1) * per_epoch)]
    return [record for batch in batches for record in flatten(batch)[0].tolist()]


# What a composition is, next to the list of records that it must hold: an oracle without arithmetic.

Known = tuple[RecordSource, list[int]]


@st.composite
def plain(draw: Any, options: dict[str, Any]) -> Known:
    first, count = draw(st.integers(0, 3)) * 100, draw(st.integers(1, 24))
    rows = np.arange(first, first + count)
    if draw(st.booleans()):
        return MapSource(rows.tolist(), **options), rows.tolist()
    return ArraySource(rows, **options), rows.tolist()


@st.composite
def narrowed(draw: Any, known: Known) -> Known:
    source, records = known
    how = draw(st.sampled_from(["take", "skip", "split", "key", "mask", "numbers"]))
    if how == "mask":
        mask = draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)).filter(any))
        return source.select(mask), [record for record, chosen in zip(records, mask) if chosen]
    if how == "numbers":
        wanted = draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=9))
        # Numbers that look like a mask are refused.
        assume(len(wanted) != len(records) or max(wanted) > 1)
        return source.select(wanted), [records[number] for number in wanted]
    if how == "take":
        count = draw(st.integers(1, len(records) + 3))
        return source.take(count), records[:count]
    if how == "skip":
        count = draw(st.integers(0, len(records) - 1))
        return source.skip(count), records[count:]
    fraction, seed = draw(st.floats(0.05, 0.95)), draw(st.integers(0, 9))
    key = [record % 7 for record in records] if how == "key" else None
    try:
        parts = source.split(fraction, seed, key=key)
    except ValueError:  # a part would be empty
        return known
    which = draw(st.integers(0, 1))
    held = [epoch(part.with_options(shuffle=False, across_epochs=False)) for part in parts]
    assert sorted(held[0] + held[1]) == sorted(records), "no record is lost or in both"
    return parts[which], held[which]


@st.composite
def compositions(draw: Any, options: dict[str, Any], depth: int = 3) -> Known:
    known = draw(plain(options))
    for _ in range(draw(st.integers(0, depth))):
        if draw(st.booleans()):
            known = draw(narrowed(known))
        else:
            other = draw(compositions(options, depth=depth - 1)) if depth else draw(plain(options))
            known = concatenate([known[0], other[0]]), known[1] + other[1]
    return known


@st.composite
def option_sets(draw: Any) -> dict[str, Any]:
    return {
        "batch_size": draw(st.integers(1, 9)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
        "epochs": draw(st.integers(1, 3)),
        "across_epochs": draw(st.booleans()),
    }


@settings(max_examples=examples(60))
@given(st.data())
def test_a_composition_holds_what_the_lists_hold(data: Any) -> None:
    options = data.draw(option_sets())
    source, records = data.draw(compositions(options))
    in_order = source.with_options(shuffle=False, across_epochs=False)
    assert epoch(in_order) == records
    assert source.num_records == len(records)
    got = [record for batch in source.batches() for record in batch.tolist()]
    assert Counter(got) == Counter(records * options["epochs"])


# take, skip and split


@pytest.mark.parametrize("fraction", [0.9, 0.5, 0.1, 1 / 3, 0.001])
def test_a_split_is_exact_and_spread_evenly(fraction: float) -> None:
    first, second = numbered(count=5000, batch_size=5000).split(fraction, seed=1)
    assert first.num_records == round(5000 * fraction)
    few = min(first, second, key=lambda part: part.num_records).batch(0)
    parts = np.array_split(np.arange(5000), len(few))
    assert all(part[0] - 1 <= record <= part[-1] + 1 for record, part in zip(few, parts)), "one of each stretch"
    assert (np.diff(first.batch(0)) > 0).all() and (np.diff(second.batch(0)) > 0).all(), "in the order of the records"


def test_a_split_takes_no_memory_for_a_billion_records() -> None:
    rows = np.broadcast_to(np.int8(0), (10**9,))
    train, validation = ArraySource(rows, batch_size=8, shuffle=True, seed=1).split(0.99, seed=1)
    ids = np.concatenate([part.record_ids(k) for part in (train, validation) for k in range(50)])
    assert (train.num_records, validation.num_records) == (990_000_000, 10_000_000)
    assert len(set(ids.tolist())) == len(ids)


def test_a_key_stays_where_it_is_when_records_are_added() -> None:
    def parts(count: int) -> tuple[set[int], set[int]]:
        first, second = numbered(count=count).split(0.8, seed=2, key=[f"patient {n // 3}" for n in range(count)])
        return set(epoch(first)), set(epoch(second))

    (few, few_left), (many, many_left) = parts(300), parts(900)
    assert few <= many and few_left <= many_left
    assert {n // 3 for n in many}.isdisjoint({n // 3 for n in many_left}), "a patient is in one part only"
    assert 0.7 < len(many) / 900 < 0.9


def test_keys_may_be_integers_strings_and_bytes() -> None:
    whole = numbered(count=64)
    for key in (np.arange(64), range(-32, 32), [str(n) for n in range(64)], [b"%d" % n for n in range(64)]):
        first, second = whole.split(0.5, 1, key=key)
        assert sorted(epoch(first) + epoch(second)) == list(range(64))
    # As os.listdir has the names of files that are not UTF-8.
    names = [b"caf\xe9 %d" % n for n in range(64)]
    texts, coded = (whole.split(0.5, 1, key=key)[0] for key in (list(map(os.fsdecode, names)), names))
    assert epoch(texts) == epoch(coded)


# concatenate and zip_records


def test_concatenate_shuffles_all_records_together() -> None:
    both = concatenate([numbered(0, 500, shuffle=True, seed=1), numbered(500, 500, shuffle=True, seed=1)])
    got = epoch(both)
    assert sorted(got) == list(range(1000)) and 200 < sum(record < 500 for record in got[:500]) < 300
    assert both.spec == ArraySpec((4,), np.int64)


def test_zip_records_has_the_structure_of_its_sources() -> None:
    zipped = zip_records(
        {"a": numbered(0), "b": (numbered(10), ArraySource({"c": np.ones(10)}, batch_size=4, epochs=1))}
    )
    batch = zipped.batch(2)
    assert (
        batch["a"].tolist() == [8, 9] and batch["b"][0].tolist() == [18, 19] and batch["b"][1]["c"].tolist() == [1, 1]
    )
    assert [leaf.name for leaf in flatten(zipped.spec)] == ["a", "b[0]", "b[1].c"]
    testing.assert_resumes_everywhere(zipped)
    testing.assert_shards_partition(zipped, 3)


def test_options_of_the_parts_are_kept_and_can_be_changed() -> None:
    def double(batch: Any) -> Any:
        return batch * 2

    both = concatenate([numbered(transform=double), numbered(transform=double)])
    assert both.batch(0).tolist() == [0, 2, 4, 6]
    changed = both.with_options(batch_size=6, transform=None, epochs=2)
    assert changed.batch(0).tolist() == [0, 1, 2, 3, 4, 5] and changed.epochs == 2
    assert changed.with_options(shuffle=True).seed_was_drawn
    assert not changed.with_options(shuffle=True, seed=1).seed_was_drawn


class Scaled:
    def by_two(self, batch: Any) -> Any:
        return batch * 2


def test_the_same_method_is_the_same_transform() -> None:
    scaled = Scaled()
    both = concatenate([numbered(transform=scaled.by_two), numbered(transform=scaled.by_two)])
    assert both.batch(0).tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="got sources with transform="):
        concatenate([numbered(transform=scaled.by_two), numbered(transform=Scaled().by_two)])


def test_record_ids_may_be_overwritten() -> None:
    for source in (numbered(shuffle=True, seed=1), numbered(shuffle=True, seed=1).split(0.5, 1)[0]):
        ids = source.record_ids(0)
        kept = ids.tolist()
        ids[:] = 0
        assert source.record_ids(0).tolist() == kept


def test_a_record_is_gathered_from_one_source_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(ArraySource):
        gathered = 0

        def gather(self, records: Any) -> Any:
            batch = super().gather(records)
            Counted.gathered += len(batch)
            return batch

    parts = [Counted(np.arange(10), batch_size=4, epochs=1, shuffle=True, seed=1) for _ in range(3)]
    list(concatenate(parts).batches())
    assert Counted.gathered == 30


# Private names that a subclass of a user's is likely to have.
OWN_NAMES = """
_data _rows _columns _records _batches _index _start _stop _first _last _length _size _path _file _files _cache
_lock _order _seed _rng _spec _shape _dtype _transform _load _read _only _with _options _layout _memo""".split()


def test_a_subclass_may_have_private_names_of_its_own() -> None:
    class Mine(RecordSource):
        def __init__(self, **options: Any) -> None:
            for name in OWN_NAMES:
                setattr(self, name, name)
            super().__init__(10, **options)

        def record_spec(self, batch_dim: int | None) -> Any:
            return ArraySpec((batch_dim,), np.int64)

        def gather(self, records: Any) -> Any:
            assert all(getattr(self, name) == name for name in OWN_NAMES)
            return np.arange(10)[records]

    source = Mine(batch_size=4, epochs=1, shuffle=True, seed=1, transform=lambda batch: batch)
    for each in (source, source.take(5), source.shard(1, 2), source.weighted(range(10)), source.with_seed(3)):
        assert each.spec.dtype == np.int64 and each.batch(0).tolist() == each.record_ids(0).tolist()
    assert concatenate([source, source.skip(3)]).num_records == 17 and repr(source) and source.fingerprint()


# Fingerprints


def test_what_a_subclass_adds_to_its_fingerprint_is_kept() -> None:
    class Mine(ArraySource):
        def fingerprint(self) -> dict[str, int | str]:
            return {**super().fingerprint(), "table": "a"}

    both = concatenate([Mine(np.arange(3), batch_size=4)] * 2)
    assert both.fingerprint()["records"] == "concatenate(Mine(3, table='a'), Mine(3, table='a'))"


def test_a_long_fingerprint_ends_with_a_hash() -> None:
    def nested(last: int) -> str:
        sources = [numbered().take(n) for n in (*range(1, 10), last)]
        return str(concatenate(concatenate([each, each]) for each in sources).fingerprint()["records"])

    assert len(nested(1)) < 340 and nested(1) != nested(2)
