"""A gathered batch has one row for each record, in every component: otherwise records are lost or mixed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource, MapSource, RecordSource, SequenceSource, concatenate, zip_records
from staging_tf1.spec import ArraySpec
from staging_tf1.spec.ragged import RaggedValue
from staging_tf1.spec.sparse import SparseValue

pytestmark = pytest.mark.usefixtures("quick_graphs")

Collate = Callable[[list[int]], Any]


def column(rows: list[int]) -> Any:
    return np.array(rows, np.int64)


def ragged(rows: list[int]) -> Any:
    return RaggedValue.from_rows([[row] for row in rows], dtype=np.int64)


def sparse(rows: list[int]) -> Any:
    return SparseValue([[n, 0] for n in range(len(rows))], column(rows), [len(rows), 5])


KINDS: dict[str, Callable[[list[int]], Any]] = {
    "array": column,
    "matrix": lambda rows: column(rows)[:, None],
    "ragged": ragged,
    "sparse": sparse,
}
# What a function makes of the records of a batch, which are right in the first ones.
FAULTS: dict[str, Callable[[list[int]], list[int]]] = {
    "drops": lambda rows: [row for row in rows if row < 8 or row % 4],
    "repeats": lambda rows: [row for row in rows for _ in range(1 + (row >= 8))],
    "drops all": lambda rows: [row for row in rows if row < 8],
}
# The last batch of 41 records is partial, so batches of any size fit the spec.
LENGTHS = {"static": (40, False), "dynamic": (41, False), "remainder": (41, True)}
MESSAGE = r"MapSource: collate returned {} with \d+ rows for \d records\. It must return one row for each record"


def faulty(collate: Collate, length: str, **options: Any) -> MapSource:
    count, drop = LENGTHS[length]
    return MapSource(
        list(range(count)), collate=collate, **{"batch_size": 4, "epochs": 1, "drop_remainder": drop, **options}
    )


def only(kind: str, fault: str) -> Collate:
    return lambda records: KINDS[kind](FAULTS[fault](records))


def second(kind: str, fault: str) -> Collate:
    return lambda records: {"x": column(records), "y": KINDS[kind](FAULTS[fault](records))}


@pytest.mark.thinned
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [only, second])
def test_collate_that_returns_other_rows_is_named(make: Any, kind: str, fault: str, length: str) -> None:
    if kind == "sparse" and fault == "drops all":
        pytest.skip("a sparse value without rows needs a shape of its own")
    source = faulty(make(kind, fault), length)
    assert source.batch(0) is not None and source.batch(1) is not None
    with pytest.raises(SpecError, match=MESSAGE.format("the batch" if make is only else "component 'y'")):
        source.batch(2)
    with pytest.raises(SpecError, match="one row for each record"):
        faulty(make(kind, fault), length, batch_size=41, drop_remainder=False).batch(0)


def test_a_last_batch_with_other_rows_is_named() -> None:
    source = faulty(lambda rows: column(rows if len(rows) > 1 else rows * 2), "dynamic", batch_size=8)
    first = faulty(lambda rows: column(rows if 40 not in rows else rows * 2), "dynamic", batch_size=8)
    with pytest.raises(SpecError, match="2 rows for 1 records"):
        first.batch(5)
    with pytest.raises(SpecError, match="2 rows for 1 records"):
        source.spec  # noqa: B018


class Own(RecordSource):
    """Leaves out a row of a component in the batches of records from 8 on."""

    def record_spec(self, batch_dim: int | None) -> Any:
        return {name: ArraySpec((batch_dim,), np.int64) for name in "xy"}

    def gather(self, records: Any) -> Any:
        numbers = np.arange(records.start, records.stop, records.step) if isinstance(records, slice) else records
        return {"x": numbers, "y": numbers[numbers != 9]}


OWN_MESSAGE = r"Own: gather\(\) returned component 'y' with \d+ rows for \d+ records\."
OWN: dict[str, Callable[[RecordSource], RecordSource]] = {
    "itself": lambda source: source,
    "taken": lambda source: source.take(17),
    "split": lambda source: source.split(0.9, 1)[0].take(12),
    "shuffled": lambda source: source.with_options(shuffle=True, seed=1, batch_size=20),
    "concatenated": lambda source: concatenate([source, source]),
    "concatenated, shuffled": lambda source: concatenate([source, source]).with_options(
        shuffle=True, seed=1, batch_size=40
    ),
    "zipped": lambda source: zip_records((source, ArraySource(np.arange(20), batch_size=4, epochs=1))),
    "padded": lambda source: source.pad(),
    "transformed": lambda source: source.with_options(transform=lambda batch: batch),
}


@pytest.mark.parametrize("name", OWN)
def test_a_source_of_ones_own_that_returns_other_rows_is_named(name: str) -> None:
    source = OWN[name](Own(20, batch_size=4, epochs=1))
    with pytest.raises(SpecError, match=OWN_MESSAGE):
        list(source.batches())


def test_a_transform_may_change_the_rows() -> None:
    source = ArraySource(np.arange(9), batch_size=4, epochs=1, transform=lambda batch: np.repeat(batch, 3))
    assert [len(batch) for batch in source.batches()] == [12, 12, 3]


def test_the_rows_of_batches_that_are_read_whole_may_be_any() -> None:
    source = SequenceSource([(np.arange(3), np.arange(3)), (np.arange(5), np.arange(5))], epochs=1)
    assert [len(batch[0]) for batch in source.batches()] == [3, 5]
