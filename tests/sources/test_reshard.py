"""The position after a change of the number of shards, compared with counting the records one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1.sources.reshard import BY_BATCHES, carried_over

EPOCHS_ENOUGH = 16


class Dealing(NamedTuple):
    batch_size: int
    drop_remainder: bool
    across_epochs: bool
    index: int
    count: int
    towers: int

    def fingerprint(self, num_records: int, epochs: int | None = None) -> dict[str, Any]:
        ends = {"epochs": epochs} if epochs is not None and self.across_epochs and not self.drop_remainder else {}
        return {
            **ends,
            "source": "ArraySource",
            "num_records": num_records,
            "batch_size": self.batch_size,
            "shuffle": 1,
            "seed": 3,
            "drop_remainder": int(self.drop_remainder),
            "across_epochs": int(self.across_epochs),
            "shard_index": self.index,
            "shard_count": self.count,
        }


Record = tuple[int, int]  # (epoch, place in the common order)


def dealt(dealing: Dealing, shard: int, num_records: int, epochs: int) -> tuple[list[list[Record]], list[int]]:
    """Return the batches of one shard, record by record, and the number of places passed after each batch."""
    places = list(range(num_records))[shard :: dealing.count * dealing.towers]
    runs = [[(epoch, place) for place in places] for epoch in range(epochs)]
    if dealing.across_epochs:
        runs = [[record for run in runs for record in run]]
    batches: list[list[Record]] = []
    passed = [0]
    for run in runs:
        cut = [run[k : k + dealing.batch_size] for k in range(0, len(run), dealing.batch_size)]
        if dealing.drop_remainder and len(cut[-1]) < dealing.batch_size:
            cut.pop()
        for batch in cut:
            batches.append(batch)
            passed.append(passed[-1] + len(batch))
        if cut:
            passed[-1] += len(run) - sum(map(len, cut))
    return batches, passed


def counted(
    had: Dealing, positions: list[int], has: Dealing, num_records: int, epochs: int, more: int = 0
) -> tuple[int, tuple[int, ...], int]:
    """Return the same as `carried_over`, by going through all records."""
    present = epochs + more
    if "epochs" not in had.fingerprint(num_records, epochs):
        epochs = present
    delivered: set[Record] = set()
    passed: set[Record] = set()
    alone = (had.index, had.count) == (has.index, has.count)
    own = range(had.index, had.count * had.towers, had.count)
    for shard in own if alone else range(had.count * had.towers):
        batches, upto = dealt(had, shard, num_records, epochs)
        count = min(positions[shard // had.count], len(batches))
        delivered.update(record for batch in batches[:count] for record in batch)
        places = range(shard, num_records, had.count * had.towers)
        passed.update([(epoch, place) for epoch in range(epochs) for place in places][: upto[count]])
    new_own = range(has.index, has.count * has.towers, has.count)
    going_on, repeated = {}, 0
    for shard in new_own if alone or had.count == has.count else range(has.count * has.towers):
        batches, _ = dealt(has, shard, num_records, present)
        k = 0
        while k < len(batches) and passed.issuperset(batches[k]):
            k += 1
        going_on[shard] = k
        repeated += sum(record in delivered for batch in batches[k:] for record in batch)
    return len(delivered), tuple(going_on[shard] for shard in new_own), repeated


@st.composite
def dealings(draw: Any, num_records: int, same: tuple[int, int] | None = None) -> Dealing:
    count = draw(st.integers(1, min(3, num_records))) if same is None else same[1]
    index = draw(st.integers(0, count - 1)) if same is None else same[0]
    towers = draw(st.integers(1, max(1, min(4, num_records // count))))
    smallest = num_records // (count * towers)
    drop, across = draw(st.booleans()), draw(st.booleans())
    batch_size = draw(st.integers(1, smallest if drop else smallest + 3))
    return Dealing(batch_size, drop, across, index, count, towers)


@st.composite
def cases(draw: Any) -> tuple[Dealing, list[int], Dealing, int, int | None]:
    num_records = draw(st.integers(1, 24))
    epochs = draw(st.one_of(st.none(), st.integers(1, 7)))
    had = draw(dealings(num_records))
    has = draw(dealings(num_records, draw(st.sampled_from([None, (had.index, had.count)]))))
    most = []
    for tower in range(had.towers):
        batches, _ = dealt(had, had.index + had.count * tower, num_records, epochs or EPOCHS_ENOUGH // 2)
        most.append(len(batches))
    if draw(st.booleans()):
        positions = [draw(st.integers(0, min(most)))] * had.towers
    else:
        positions = [draw(st.integers(0, each)) for each in most]
    return had, positions, has, num_records, epochs


@settings(max_examples=examples(400))
@example((Dealing(1, False, True, 0, 2, 3), [0, 0, 3], Dealing(1, False, False, 0, 1, 1), 17, 1), 1)
@given(cases(), st.integers(0, 3))
def test_it_is_what_counting_one_by_one_finds(
    case: tuple[Dealing, list[int], Dealing, int, int | None], more: int
) -> None:
    had, positions, has, num_records, epochs = case
    present = None if epochs is None else epochs + more
    carried = carried_over(
        had.fingerprint(num_records, epochs),
        positions,
        has.fingerprint(num_records, present),
        has.towers,
        epochs=present,
    )
    assert carried is not None
    found = counted(had, positions, has, num_records, epochs or EPOCHS_ENOUGH, more)
    assert (carried.consumed, carried.positions, carried.repeated) == found
    assert carried.presumed == ((had.index, had.count) != (has.index, has.count))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 5))
def test_what_is_dealt_out_in_rotation_goes_on_behind_its_first_gap(positions: list[int], towers: int) -> None:
    fingerprint: dict[str, Any] = {"source": "tf.data.Dataset", **BY_BATCHES}
    carried = carried_over(fingerprint, positions, fingerprint, towers)
    assert carried is not None and carried.unit == "batches" and not carried.presumed
    consumed = {k * len(positions) + tower for tower, position in enumerate(positions) for k in range(position)}
    gap = min(set(range(len(consumed) + 1)) - consumed)
    assert carried.consumed == len(consumed)
    assert carried.repeated == sum(batch >= gap for batch in consumed)
    assert carried.positions == tuple(len(range(tower, gap, towers)) for tower in range(towers))


RECORDS = Dealing(4, False, False, 0, 1, 1).fingerprint(24)


@pytest.mark.parametrize(
    ("saved", "present"),
    [
        (RECORDS, {**RECORDS, "seed": 4}),
        (RECORDS, {**RECORDS, "num_records": 25}),
        (RECORDS, {**RECORDS, "source": "TFRecordSource"}),
        (RECORDS, {**RECORDS, "files": "two more"}),
        ({"source": "Mine"}, {"source": "Mine"}),
        ({"source": "a", **BY_BATCHES}, {"source": "b", **BY_BATCHES}),
        (
            {"source": "grain.MapDataset", "batch_size": 4, **BY_BATCHES},
            {"source": "grain.MapDataset", "batch_size": 5, **BY_BATCHES},
        ),
    ],
)
def test_what_has_no_order_in_common_is_not_carried_over(saved: dict[str, Any], present: dict[str, Any]) -> None:
    assert carried_over(saved, [3], present, 2) is None


def test_it_is_arithmetic_for_a_billion_records_and_epochs() -> None:
    had = Dealing(128, False, False, 0, 1, 64).fingerprint(10**9 + 7)
    carried = carried_over(had, [10**12] * 64, {**had, "batch_size": 96}, 48)
    assert carried is not None and carried.consumed > 10**15
    assert len(set(carried.positions)) <= 2


@pytest.mark.parametrize(
    ("num_records", "index", "count"), [(1 << 40, 0, 1 << 31), (9, 0, 10), (9, 3, 3), (9, -1, 3), (9, 0, 0)]
)
def test_a_damaged_shard_is_refused_at_once(num_records: int, index: int, count: int) -> None:
    present = Dealing(2, False, False, 0, 2, 1).fingerprint(num_records)
    saved = {**present, "shard_index": index, "shard_count": count}
    with pytest.raises(ValueError, match=f"shard {index} of {count}, of {num_records} records"):
        carried_over(saved, [1], present, 1, epochs=1)
