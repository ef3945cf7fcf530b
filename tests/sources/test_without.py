"""`without`: records that are left out, beside a naive model."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1 import testing
from staging_tf1.errors import StagingError
from staging_tf1.sources import (
    ArraySource,
    MapSource,
    RecordSource,
    SequenceSource,
    TFRecordSource,
    cached,
    concatenate,
    mix,
    write_tfrecords,
    zip_records,
)
from staging_tf1.sources.reshard import carried_over
from staging_tf1.sources.spans import Spans, checked_spans, next_kept
from staging_tf1.spec import flatten

COUNT = 30


def numbered(count: int = COUNT, **options: Any) -> ArraySource:
    """Records that are consecutive numbers."""
    return ArraySource(np.arange(count), **{**dict(batch_size=4, epochs=2, seed=3), **options})


def lists(count: int = COUNT, **options: Any) -> MapSource:
    """Records of different lengths, each full of its number."""
    records = [[number] * (1 + number % 3) for number in range(count)]
    return MapSource(records, **{**dict(batch_size=4, epochs=2, seed=3), **options})


LENGTHS = [1 + number % 3 for number in range(COUNT)]

# Nodes of the source itself: where it is left out, before or after, makes no difference.
NODES: dict[str, Callable[[Any], RecordSource]] = {
    "none": lambda s: s,
    "take": lambda s: s.take(17),
    "skip": lambda s: s.skip(5),
    "split": lambda s: s.split(0.7, 1)[0],
    "the rest of a split": lambda s: s.split(0.7, 1)[1],
    "split by key": lambda s: s.split(0.5, 1, key=[n // 3 for n in range(s.num_records)])[0],
    "select": lambda s: s.select([7, 7, 2, 0, 11, 29, 2, 5, 13]),
    "mask": lambda s: s.select(np.arange(s.num_records) % 3 > 0),
    "take of skip": lambda s: s.skip(3).take(11).select([4, 2, 9, 9]),
    "shard": lambda s: s.shard(1, 3),
    "shard of a shard": lambda s: s.shard(1, 2).shard(0, 3),
    "by_length": lambda s: s.by_length([n * 7 % 11 for n in range(s.num_records)], block=2),
    "weighted": lambda s: s.weighted([1 + n % 4 for n in range(s.num_records)], num_records=21),
    "balanced": lambda s: s.balanced([n % 5 for n in range(s.num_records)]),
    "shard by_length": lambda s: s.by_length([n * 7 % 11 for n in range(s.num_records)]).shard(2, 3),
    "with_options": lambda s: s.with_options(batch_size=7, epochs=3),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": dict(shuffle=True),
    "dropping": dict(shuffle=True, drop_remainder=True, batch_size=3),
    "across": dict(shuffle=True, across_epochs=True, batch_size=7),
    "singles": dict(batch_size=1, shuffle=True, epochs=1),
    "endless": dict(epochs=None, shuffle=True),
}


def batches_of(source: RecordSource) -> range:
    return range(25 if source.num_batches is None else source.num_batches)


def check(whole: RecordSource, source: RecordSource, left_out: set[int], ids: Callable[[Any], list[int]]) -> None:
    """Compare a source with one without anything left out. `ids` returns the records of a batch."""
    assert (source.num_batches, source.num_records, source.epochs) == (
        whole.num_batches,
        whole.num_records,
        whole.epochs,
    )
    model = {k: [n for n in whole.record_ids(k).tolist() if n not in left_out] for k in batches_of(whole)}
    for k, expected in model.items():
        assert source.record_ids(k).tolist() == expected
        assert source.is_left_out(k) == (not expected)
        if expected:
            assert ids(source.batch(k)) == expected
        else:
            with pytest.raises(ValueError, match=rf"batch {k} has no record, because without\(\) leaves out all"):
                source.batch(k)
    for start in (0, len(model) // 2):
        expected = [model[k] for k in range(start, len(model)) if model[k]]
        assert [ids(batch) for batch in itertools.islice(source.batches(start), len(expected))] == expected
    order, without = dict(whole.fingerprint()), dict(source.fingerprint())
    without.pop("without", None)
    assert order == without, "all else is the same order"


@settings(max_examples=examples(200))
@given(
    node=st.sampled_from(sorted(NODES)),
    options=st.sampled_from(sorted(OPTIONS)),
    left_out=st.sets(st.integers(0, COUNT - 1), max_size=COUNT - 12),
    parts=st.integers(1, 3),
)
@example("none", "in order", {0, 1, 2, 3}, 1)
@example("none", "singles", {4, 5}, 2)
def test_each_node_without_records(node: str, options: str, left_out: set[int], parts: int) -> None:
    whole = NODES[node](numbered(**OPTIONS[options]))
    numbers = set(itertools.chain(*(whole.record_ids(k).tolist() for k in batches_of(whole))))
    if numbers <= left_out:
        return
    listed = sorted(left_out)
    # At once and in parts, before and after the node.
    source = whole
    for part in range(parts):
        source = source.without(listed[part::parts])
    check(whole, source, left_out, lambda batch: batch.tolist())
    before = NODES[node](numbered(**OPTIONS[options]).without(listed))
    for k in batches_of(whole):
        assert before.record_ids(k).tolist() == source.record_ids(k).tolist()
    assert before.fingerprint() == source.fingerprint()


def nine_more(**options: Any) -> ArraySource:
    """Records that continue those of `numbered(20)`."""
    return ArraySource(np.arange(20, 29), **{**dict(batch_size=4, epochs=2, seed=3), **options})


def batches(batch_size: int = 0, across_epochs: bool = False, **options: Any) -> SequenceSource:
    return SequenceSource([[n, n] for n in range(COUNT)], **{**dict(epochs=2, seed=3), **options})


# Each makes a source of the options of its records, and says which records a batch of it has.
COMBINED: dict[str, tuple[Callable[..., RecordSource], Callable[[Any], list[int]]]] = {
    "mix": (lambda **o: mix([numbered(20, **o), nine_more(**o)], [0.7, 0.3]), lambda batch: batch.tolist()),
    "concatenate": (lambda **o: concatenate([numbered(20, **o), nine_more(**o).take(5)]), lambda batch: batch.tolist()),
    "zip": (lambda **o: zip_records((numbered(20, **o), numbered(20, **o))), lambda batch: batch[1].tolist()),
    "pad": (lambda **o: lists(**o).pad(), lambda batch: batch[:, 0].tolist()),
    "ragged": (lambda **o: lists(**o).ragged(), lambda batch: [row[0] for row in batch.to_list()]),
    "batches": (batches, lambda batch: batch[:1].tolist()),
}


@settings(max_examples=examples(200))
@given(
    kind=st.sampled_from(sorted(COMBINED)),
    options=st.sampled_from(["in order", "shuffled", "across", "endless"]),
    shards=st.integers(1, 3),
    data=st.data(),
)
def test_each_combination_without_records(kind: str, options: str, shards: int, data: Any) -> None:
    make, ids = COMBINED[kind]
    whole = make(**OPTIONS[options]).shard(shards - 1, shards)
    numbers = sorted({number for k in batches_of(whole) for number in whole.record_ids(k).tolist()})
    left_out = data.draw(st.sets(st.sampled_from(numbers), max_size=len(numbers) // 2))
    check(whole, whole.without(sorted(left_out)), left_out, ids)


def test_packed_rows_can_be_left_out() -> None:
    whole = lists(shuffle=True).packed(5, LENGTHS)
    source = whole.without([0, 3, 5])
    for k in batches_of(whole):
        kept = [number for number in whole.record_ids(k).tolist() if number not in (0, 3, 5)]
        assert source.record_ids(k).tolist() == kept and len(flatten(source.batch(k))[0]) == len(kept)


def test_what_a_batch_draws_does_not_depend_on_what_is_left_out() -> None:
    def draw(batch: Any, rng: np.random.Generator) -> Any:
        return np.stack([batch, np.full(len(batch), rng.integers(10**6))], axis=1)

    whole = numbered(shuffle=True, transform=draw)
    source = whole.without(whole.record_ids(2)[:2])
    assert [(source.batch(k)[0, 1] == whole.batch(k)[0, 1]) for k in range(15)] == [True] * 15
    first = whole.without(whole.record_ids(0))
    assert first.spec.shape == (None, 2), "the spec comes from the first batch with a record"


def test_a_position_is_mapped_as_if_nothing_were_left_out() -> None:
    whole = numbered(epochs=None, shuffle=True)
    source = whole.without([5, 6])
    assert carried_over(source.fingerprint(), [6], whole.fingerprint(), 2) == carried_over(
        whole.fingerprint(), [6], source.without([1]).fingerprint(), 2
    )
    assert carried_over(source.fingerprint(), [6], numbered(epochs=None).fingerprint(), 2) is None


def test_batches_vary_in_size() -> None:
    assert numbered(28).spec.shape == (4,)
    source = numbered(28, drop_remainder=True).without([5])
    assert source.spec.shape == (None,) and source.bytes_per_batch == 32
    assert source.batch(1).tolist() == [4, 6, 7]


def test_the_fingerprint_says_what_is_left_out() -> None:
    assert "without" not in numbered().without([]).fingerprint()
    assert numbered().without([range(3, 5), 4, 9, 3]).fingerprint()["without"] == "3-4, 9"
    many = numbered(4000).without([*range(0, 4000, 2)])
    text = str(many.fingerprint()["without"])
    assert text.startswith("2000 records, ") and len(text) < 40
    assert text != numbered(4000).without(np.arange(0, 4000, 2) + 1).fingerprint()["without"]
    assert repr(numbered().without([1, 2])) == "ArraySource(30 records, batch_size=4, epochs=2, 2 left out)"


# What is given, and what it says.
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a negative range": ([range(-2, 3)], ValueError, r"got range\(-2, 3\) in records, expected record numbers from"),
    "a range too far": (range(20, 31), ValueError, r"got range\(20, 31\) in records"),
    "floats": (np.array([1.0, 2.0]), TypeError, r"got records=array\(\[1\., 2\.\]\), expected record numbers"),
    "a mask": (np.arange(30) > 3, TypeError, r"For a mask, pass np\.flatnonzero\(mask\)"),
    "a masked array": (np.ma.array([1, 2], mask=[0, 1]), TypeError, "without a mask of missing values"),
    "two dimensions": (np.array([[1, 2]]), TypeError, "expected record numbers"),
    "an array too far": (np.array([1, 30]), ValueError, r"got record 30 in records"),
    "a negative array": (np.array([1, -1]), ValueError, r"got record -1 in records"),
    "a number too far": ([3, 30], ValueError, r"got 30 in records, expected record numbers from 0 to 29"),
    "a huge number": ([2**70], ValueError, "in records, expected record numbers"),
    "a float": ([2.0], TypeError, r"got 2\.0 in records"),
    "a bool": ([True], TypeError, "got True in records"),
    "numpy's bool": ([np.True_], TypeError, "in records, expected record numbers"),
    "texts": (["1-3"], TypeError, "got '1-3' in records"),
    "a source": (numbered(), TypeError, "got records=ArraySource"),
    "an empty range": ([range(5, 5)], ValueError, r"got range\(5, 5\) in records, an empty range"),
    "a range upside down": ([range(9, 3)], ValueError, r"an empty range, expected range\(FIRST, LAST \+ 1\)"),
    "backwards": ([range(9, 3, -1)], ValueError, r"a range with steps, expected steps of 1"),
    "steps": ([range(0, 9, 2)], ValueError, r"a range with steps, expected steps of 1. Pass its numbers"),
    "nested": ([[1, 2]], TypeError, r"got \[1, 2\] in records"),
    "all": (range(30), ValueError, r"without\(\) leaves none of 30 records, expected at least one"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_left_out_is_refused(kind: str) -> None:
    given_value, error, text = REFUSED[kind]
    with pytest.raises(error, match=text):
        numbered().without(given_value)


TAKEN: dict[str, tuple[Any, list[int]]] = {
    "nothing": ([], []),
    "an empty array": (np.zeros(0), []),
    "overlapping": ([range(2, 6), range(4, 8), 5], [2, 3, 4, 5, 6, 7]),
    "touching": ([range(2, 4), range(4, 6)], [2, 3, 4, 5]),
    "numpy's integers": ([np.int64(3), np.uint8(5)], [3, 5]),
    "an array": (np.array([5, 3, 3], np.uint16), [3, 5]),
    "a range": (range(3, 6), [3, 4, 5]),
    "a tuple": ((1, range(2, 4)), [1, 2, 3]),
    "a set": ({1, 2}, [1, 2]),
    "a generator": ((number for number in (4, 2)), [2, 4]),
    "the first and the last": ([0, 29], [0, 29]),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_what_can_be_left_out(kind: str) -> None:
    given_value, numbers = TAKEN[kind]
    source = numbered(epochs=1).without(given_value)
    assert sorted({*range(30)} - {int(n) for batch in source for n in batch}) == numbers


def test_none_may_be_left() -> None:
    with pytest.raises(ValueError, match=r"leaves none of 5 records"):
        numbered().take(5).without(range(5))
    assert numbered().take(5).without(range(5, 30)).batch(0).tolist() == [0, 1, 2, 3], "not among them"
    with pytest.raises(ValueError, match=r"leaves none of 2 records"):
        numbered().select([3, 3]).without([range(3, 5)])
    both = mix([numbered(20, epochs=None), numbered(5, epochs=None)], seed=1)
    assert both.num_records == 10
    assert both.without(range(10)).record_ids(0).min() >= 10
    with pytest.raises(ValueError, match="leaves none"):
        both.without(range(25))
    nothing = numbered(3, epochs=None).weighted([0, 1, 1]).without([1, 2])
    with pytest.raises(StagingError, match=r"without\(\) leaves no record in 10000 batches, up to batch 9999"):
        next_kept(nothing, Spans.of([], []), 0, None)
    with pytest.raises(ValueError, match=r"leaves no record in any batch"):
        numbered(3).weighted([0, 1, 1]).without([1, 2]).with_options(transform=lambda batch: batch).spec  # noqa: B018


def test_a_part_of_a_combination_cannot_leave_out(tmp_path: Path) -> None:
    part, texts = numbered(epochs=None).without([1]), lists(epochs=None).without([1])
    for combine in (
        lambda: concatenate([part]),
        lambda: mix([part]),
        lambda: zip_records((part,)),
        lambda: texts.packed(5, LENGTHS),
    ):
        with pytest.raises(ValueError, match=r"which leaves out records. Call without\(\) on the result"):
            combine()


# A record that is left out is not read.


class Bad:
    """Records of which some cannot be read."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        if number in (0, 3):
            raise OSError(f"no record {number}")
        return [number]


@pytest.mark.parametrize("collate", ["stack", "pad", "ragged", "function"])
def test_what_is_left_out_is_not_read(collate: str) -> None:
    function = lambda records: np.array(records)  # noqa: E731
    source = MapSource(Bad(), batch_size=3, epochs=1, collate=function if collate == "function" else collate)
    source = source.without([0, 3])
    assert source.spec is not None
    rows = [getattr(batch, "to_list", lambda batch=batch: batch.tolist())() for batch in source]
    assert rows == [[[1], [2]], [[4], [5]]]


def test_a_batch_that_is_left_out_is_not_read() -> None:
    class Batches(Bad):
        def __getitem__(self, number: int) -> Any:
            return [super().__getitem__(number)] * 2

    source = SequenceSource(Batches(), epochs=1).without([0, 3])
    assert source.spec.shape == (None, 1) and source.bytes_per_batch == 16
    assert [batch[0, 0] for batch in source] == [1, 2, 4, 5]


def test_corrupt_records_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.tfrecord"
    write_tfrecords([b"%d" % number for number in range(6)], str(path))
    content = bytearray(path.read_bytes())
    content[12] ^= 1  # the first record
    path.write_bytes(bytes(content))
    source = TFRecordSource(str(path), batch_size=4, epochs=1, parse_fn=int)
    with pytest.raises(StagingError):
        source.batch(0)
    assert [batch.tolist() for batch in source.without([0])] == [[1, 2, 3], [4, 5]]


def test_a_cache_leaves_out_what_its_source_does(tmp_path: Path) -> None:
    whole = numbered(10, epochs=1)
    kept = cached(whole.without([2, range(4, 9)]), str(tmp_path / "one"), batch_size=9, epochs=1)
    assert kept.batch(0).tolist() == [0, 1, 3, 9]
    changed = whole.with_options(transform=lambda batch: batch * 2).without([2, range(4, 8)])
    assert cached(changed, str(tmp_path / "two"), batch_size=9, epochs=1).batch(0).tolist() == [0, 2, 6, 16, 18]
    with pytest.raises(StagingError, match="without='2, 4-8'"):
        cached(whole, str(tmp_path / "one"), batch_size=9, epochs=1, if_changed="error")


def test_it_works_in_threads_and_where_it_is_moved_to() -> None:
    source = numbered(shuffle=True).without([3, range(10, 14)])
    testing.assert_deterministic(source)
    testing.assert_resumes_everywhere(source)
    moved = pickle.loads(cloudpickle.dumps(source))
    assert [batch.tolist() for batch in moved] == [batch.tolist() for batch in source]


# Spans


@settings(max_examples=examples(300))
@given(
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=6),
    numbers=st.lists(st.integers(0, 60), max_size=9),
)
def test_spans_are_sets(spans: list[tuple[int, int]], numbers: list[int]) -> None:
    ranges = [range(start, start + size) for start, size in spans]
    naive = set(itertools.chain(*ranges))
    found = checked_spans("f()", "x", ranges, 100, "batch")
    assert found.count == len(naive) and bool(found) == bool(naive)
    assert found.has(np.array(numbers, np.int64)).tolist() == [number in naive for number in numbers]
    parsed = Spans.parsed(found.text)
    assert (parsed.starts.tolist(), parsed.stops.tolist()) == (found.starts.tolist(), found.stops.tolist())
    outside = [number for number in range(200) if number not in naive]
    assert list(itertools.islice(found.all_outside(), 40)) == outside[:40]
    for number in numbers:
        assert found.next_outside(number) == next(each for each in outside if each >= number)
        assert found.below(number).count == sum(each < number for each in naive)
        assert (number in found) == (number in naive)
    both = found | Spans.of(numbers, [number + 1 for number in numbers])
    assert both.count == len(naive | {*numbers})
    assert all((np.diff(found.starts) > 0).tolist()) and all((found.starts[1:] > found.stops[:-1]).tolist())


def test_spans_take_no_memory() -> None:
    source = MapSource(range(10**12), batch_size=4, epochs=1).without([range(10, 10**12 - 10)])
    assert source.record_ids(2).tolist() == [8, 9] and source.is_left_out(10**6)


@pytest.mark.parametrize("text", ["x", "1-", "1,,2", "-3-5", "1.5"])
def test_a_damaged_text_is_no_span(text: str) -> None:
    with pytest.raises(ValueError):
        Spans.parsed(text)
