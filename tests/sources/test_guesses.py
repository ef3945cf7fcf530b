"""What people who know other libraries try first works, or is answered with what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.sources import ArraySource, GeneratorSource, RecordSource, SequenceSource, concatenate
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


GUESSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "len": (len, "has no len(). source.num_records counts records, source.num_batches batches."),
    "item": (lambda s: s[0], "has no []. source.batch(i) returns batch i. For record i: source.select([i]).batch(0)."),
    "contains": (lambda s: 3 in s, "has no `in`. It is an iterable of batches: compare them one by one."),
    "map": (lambda s: s.map(abs), "has no map(). Pass the function to the source: transform= gets batches, load= or"),
    "filter": (lambda s: s.filter(bool), "has no filter(). source.select(mask) chooses records."),
    "shuffle": (lambda s: s.shuffle(100), "has no shuffle(). Pass shuffle=True to the source, or source.with_options("),
    "repeat": (lambda s: s.repeat(), "has no repeat(). Pass epochs= to the source, or source.with_options(epochs=...)"),
    "prefetch": (
        lambda s: s.prefetch(1),
        "has no prefetch(). staged(source) prefetches: see its capacity= and num_thr",
    ),
}
IN_STREAM = {
    "len": "has no len(). The length of a stream is unknown.",
    "contains": "has no `in`. Compare its batches.",
    "prefetch": "has no prefetch(). staged(source) prefetches: see its capacity= and num_threads=.",
}


@pytest.mark.parametrize("name", GUESSES)
def test_a_name_of_another_library_is_answered(name: str) -> None:
    guess, message = GUESSES[name]
    for source in (numbered(), SequenceSource([[1]])):
        with pytest.raises(AttributeError) as caught:
            guess(source)
        assert str(caught.value).startswith(f"{type(source).__name__} {message}")
    with pytest.raises(AttributeError) as caught:
        guess(GeneratorSource([[1]]))
    assert IN_STREAM.get(name, "A stream is read in order: do it where its batches are made.") in str(caught.value)
    assert not hasattr(numbered(), name) and not hasattr(numbered(), "__len__")


def test_a_subclass_may_have_these_names() -> None:
    class Mine(ArraySource):
        map = "mine"

        def __init__(self) -> None:
            self.shuffle = True
            super().__init__(np.arange(3), batch_size=1)

        def __len__(self) -> int:
            return 3

    assert len(Mine()) == 3 and Mine().map == "mine" and Mine().shuffle is True and Mine().take(2).shuffle


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


def test_one_source_where_several_are_expected_is_not_read() -> None:
    with pytest.raises(TypeError, match=r"concatenate\(\) got sources=ArraySource\("):
        concatenate(numbered(epochs=None))  # type: ignore[arg-type]


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
