"""Sources of many sources, and of sources of sources: work in proportion to their number, and no deep recursion."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.sources import ArraySource, RecordSource, concatenate, mix, zip_records
from staging_tf1.spec import flatten
from staging_tf1.workers.shipping import Shipment, unloaded


class Asked(ArraySource):
    """Counts how often its spec was asked for."""

    asked = 0

    def record_spec(self, batch_dim: int | None) -> Any:
        Asked.asked += 1
        return super().record_spec(batch_dim)


def part(**options: Any) -> Asked:
    return Asked(np.arange(3), **{"batch_size": 4, "epochs": 1, **options})


def long(**options: Any) -> ArraySource:
    return ArraySource(np.arange(3000), **{"batch_size": 4, "epochs": 1, **options})


# One level more.
LEVELS: dict[str, Callable[[RecordSource], RecordSource]] = {
    "concatenate": lambda source: concatenate([source, part()]),
    "concatenate, the other way": lambda source: concatenate([part(), source]),
    "concatenate of some": lambda source: concatenate([source.skip(1), part()]),
    "zip": lambda source: zip_records((source,)),
}


def levels(name: str, count: int) -> RecordSource:
    source: RecordSource = part()
    for _ in range(count):
        source = LEVELS[name](source)
    return source


def use(source: RecordSource) -> None:
    """Do all that a pipeline does with a source."""
    assert flatten(source.spec) and source.fingerprint() and repr(source)
    assert len(flatten(source.batch(0))[0]) == len(flatten(source.pad().batch(0))[0])
    assert flatten(source.with_options(shuffle=True, seed=1).shard(0, 1).batch(0))


def moved(source: RecordSource) -> Any:
    """Move a source as to a worker process."""
    shipment = Shipment([source])
    (arrived,) = unloaded(os.dup(shipment.descriptor))
    shipment.close()
    return arrived


@pytest.mark.parametrize("name", LEVELS)
def test_levels_are_added_in_proportion(name: str) -> None:
    counts = []
    for count in (4, 8):
        Asked.asked = 0
        use(levels(name, count))
        counts.append(Asked.asked)
    assert counts[1] <= 2.5 * counts[0], f"for 4 and 8 levels: {counts}"


@pytest.mark.parametrize("name", LEVELS)
def test_fifty_levels_work_also_where_they_are_moved_to(name: str) -> None:
    source = levels(name, 50)
    use(source)
    use(moved(source))


@pytest.mark.parametrize("name", LEVELS)
def test_too_many_levels_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"sources of sources, 64 deep, .* at most 63\. Pass all sources to one call"):
        levels(name, 100)


def test_three_thousand_sources_in_one_call() -> None:
    parts = [part() for _ in range(3000)]
    Asked.asked = 0
    together = concatenate(parts)
    assert Asked.asked == 3000
    assert together.spec and together.fingerprint() and repr(together)
    assert together.num_records == 9000 and together.batch(2).tolist() == [2, 0, 1, 2]
    for made in (zip_records(tuple(parts)), mix(parts[:300], seed=1)):
        assert len(flatten(made.batch(0))[0]) in (3, 4)


CHAINS: dict[str, Callable[[RecordSource], RecordSource]] = {
    "skip": lambda source: source.skip(1),
    "shard": lambda source: source.shard(0, 1),
    "options": lambda source: source.with_options(shuffle=False),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_thousand_calls_in_a_row(name: str) -> None:
    source: RecordSource = long()
    for _ in range(1000):
        source = CHAINS[name](source)
    use(source)
    use(moved(source))
    if name == "skip":
        assert source.batch(0).tolist() == [1000, 1001, 1002, 1003]
