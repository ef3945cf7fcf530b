"""A source as a Python object: iteration, truth, `in`, its repr, and arguments of shards in the wrong order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.sources import ArraySource, GeneratorSource, RecordSource, SequenceSource
from staging_tf1.spec import ArraySpec


def numbered(**options: Any) -> ArraySource:
    return ArraySource(np.arange(10), **{**dict(batch_size=4, epochs=1), **options})


def test_a_source_is_an_iterable_of_its_batches_and_true() -> None:
    assert [batch.tolist() for batch in numbered()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert next(iter(numbered(epochs=None).shard(1, 2))).tolist() == [1, 3, 5, 7]
    assert [batch.tolist() for batch in GeneratorSource([[1], [2]])] == [[1], [2]]
    assert bool(numbered()) and bool(GeneratorSource([[1]]))
    assert numbered().element_spec == numbered().spec == ArraySpec((None,), np.int64)
    assert np.asarray(numbered()).shape == (), "numpy does not read it"


@pytest.mark.parametrize("source", [numbered(epochs=None), SequenceSource([[1]]), GeneratorSource([[1]])])
def test_in_does_not_read_the_batches(source: Any) -> None:
    with pytest.raises(TypeError, match="is not a container"):
        3 in source  # noqa: B015


def test_a_subclass_may_have_any_names() -> None:
    class Mine(ArraySource):
        map = "mine"

        def __init__(self) -> None:
            self.shuffle = True
            super().__init__(np.arange(3), batch_size=1)

        def __len__(self) -> int:
            return 3

        def __contains__(self, record: int) -> bool:
            return True

    assert len(Mine()) == 3 and 7 in Mine() and Mine().map == "mine" and Mine().take(2).shuffle is True


@pytest.mark.parametrize(("count", "index"), [(2, 1), (2, 0), (8, 3)])
def test_a_shard_in_the_order_of_tf_data_is_told_the_other_one(count: int, index: int) -> None:
    hint = rf"the index comes first, other than in tf\.data: shard\({index}, {count}\)"
    with pytest.raises(ValueError, match=hint):
        numbered().shard(count, index)
    with pytest.raises(ValueError, match=hint):
        numbered(shard=(count, index))
    for wrong in ((3, 3), (0, 0), (-1, 2), (2**70, 2)):
        with pytest.raises(ValueError, match="shard") as caught:
            numbered().shard(*wrong)
        assert "tf.data" not in str(caught.value)


def doubled(batch: Any) -> Any:
    return batch * 2


REPRS: dict[str, Callable[[], RecordSource]] = {
    "ArraySource(10 records, batch_size=4)": lambda: numbered(epochs=None),
    "ArraySource(10 records, batch_size=4, shuffle=True, seed=3, epochs=2)": lambda: numbered(
        shuffle=True, seed=3, epochs=2
    ),
    "ArraySource(10 records, batch_size=4, shuffle=True, epochs=1)": lambda: numbered(shuffle=True),
    "ArraySource(5 records, batch_size=4, epochs=1, shard=(1, 2), drop_remainder=True)": lambda: numbered(
        drop_remainder=True
    ).shard(1, 2),
    "ArraySource(10 records, batch_size=4, epochs=1, across_epochs=True, transform=doubled)": lambda: numbered(
        across_epochs=True, transform=doubled
    ),
}


@pytest.mark.parametrize("text", REPRS)
def test_a_repr_shows_the_options_that_are_not_the_default(text: str) -> None:
    assert repr(REPRS[text]()) == text
