"""`stack_columns` returns what `stack_records` returns, or leaves the records to it."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1.errors import SpecError
from staging_tf1.sources import MapSource
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.sources.stacking import record_specs, stack_columns, stack_records
from staging_tf1.spec import flatten, flatten_with_paths

Pair = namedtuple("Pair", "b a")


class Odd:
    """A class of which numpy makes objects."""


def one_by_one(records: Any) -> Any:
    specs = record_specs(records[0], "record 0")
    return stack_records(specs, enumerate(records), len(records), str)


def at_once(records: Any) -> Any:
    return stack_columns(record_specs(records[0], "record 0"), records)


PLAIN: dict[str, Any] = {
    "integers": [1, 2, -(2**63)],
    "floats": [1.5, float("nan"), -0.0],
    "bools": [True, False],
    "numpy scalars": [np.float32(1), np.float32(2)],
    "numpy bools": [np.True_, np.False_],
    "complex scalars": [np.complex64(1j), np.complex64(2)],
    "arrays": [np.arange(6).reshape(2, 3), np.arange(6, 12).reshape(2, 3).T.copy().T],
    "0-d arrays": [np.array(1.5), np.array(2.5)],
    "empty arrays": [np.zeros((0, 3)), np.zeros((0, 3))],
    "strided arrays": [np.arange(9)[::2], np.arange(9)[::-2]],
    "a dict": [{"b": 1, "a": np.zeros(2, "f")}, {"a": np.ones(2, "f"), "b": 2}],
    "a tuple": [(np.zeros(2), 1), (np.ones(2), 2)],
    "a namedtuple": [Pair(1, 2.0), Pair(3, 4.0)],
    "a list of arrays": [[np.zeros(2), np.ones(1)], [np.ones(2), np.zeros(1)]],
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_records_are_stacked_at_once(name: str) -> None:
    found, expected = at_once(PLAIN[name]), one_by_one(PLAIN[name])
    assert type(found) is type(expected)
    for (path, got), (other, array) in zip(flatten_with_paths(found), flatten_with_paths(expected), strict=True):
        assert path == other and got.dtype == array.dtype and is_aligned(got)
        np.testing.assert_array_equal(got, array)


# A batch would show no more than what the second record shares with the first.
ANOTHER: dict[str, Any] = {
    "another key": [{"a": 1}, {"b": 1}],
    "one key more": [{"a": 1}, {"a": 1, "b": 1}],
    "a list for a tuple": [(1, 2), [1, 2]],
    "a tuple for a dict": [{"a": 1}, (1,)],
    "a longer tuple": [(1, 2), (1, 2, 3)],
    "an ordered dict": [{"a": 1}, OrderedDict(a=2)],
    "another shape": [np.zeros(2), np.zeros(3)],
    "a shape that is stretched": [np.zeros(2), np.zeros(1)],
    "another dtype": [np.zeros(2), np.zeros(2, "f")],
}


@pytest.mark.parametrize("name", ANOTHER)
def test_records_unlike_the_first_are_left_to_the_check_of_each(name: str) -> None:
    assert at_once(ANOTHER[name]) is None


def test_no_records_are_left_to_it_too() -> None:
    assert stack_columns(record_specs(1, ""), []) is None
    assert stack_columns(record_specs({"a": 1}, ""), []) is None


DTYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", ">f8", "c8", "g", "O", "S1", "U2", "M8[s]"]
SCALARS = st.sampled_from("i1 u2 i4 i8 u8 f2 f4 f8 c8 g ?".split()).map(lambda code: np.dtype(code).type(1))
ARRAYS = st.builds(np.zeros, st.sampled_from([(), (1,), (2,), (0, 2)]), st.sampled_from(DTYPES))
MASKED = st.sampled_from([np.ma.masked, np.ma.array(2.5, mask=True), np.ma.array([1.0, 2.0], mask=[False, True])])
EXOTIC = st.sampled_from([None, "2.5", b"2.5", Decimal("2.5"), [7.0, 8.0], [7.0], (7.0,), {"x": 7.0}, [], Odd(), 2j])
ANYTHING = st.one_of(
    st.integers(), st.integers(2**53, 2**70), st.floats(), st.booleans(), SCALARS, ARRAYS, MASKED, EXOTIC
)


def outcome(stack: Any) -> Any:
    """Return the dtype, shape and bytes of each component that `stack` returns; None for its refusal."""
    try:
        stacked = stack()
    except SpecError:
        return None
    return None if stacked is None else [(each.dtype, each.shape, each.tobytes()) for each in flatten(stacked)]


@settings(max_examples=examples(300))
@given(first=ANYTHING | st.just(0.5), values=st.lists(ANYTHING, min_size=1, max_size=3), of_one_type=st.booleans())
def test_no_batch_is_stacked_at_once_that_the_check_of_each_refuses(first: Any, values: Any, of_one_type: bool) -> None:
    """The first record, which sets the dtypes, may be in another batch."""
    if of_one_type:
        values = [value for value in values if type(value) is type(values[0])]
    records = [{"v": value, "n": 1.5} for value in values]
    try:
        specs = record_specs({"v": first, "n": 0.5}, "record 0")
    except SpecError:  # the first record has no spec
        return
    found = outcome(lambda: stack_columns(specs, records))
    if found is not None:
        assert found == outcome(lambda: stack_records(specs, enumerate(records), len(records), str))


@pytest.mark.parametrize(
    "value",
    [None, "2.5", b"2.5", Decimal("2.5"), [7.0, 8.0], np.ma.masked, np.ma.array(3.0, mask=True), np.str_("2.5")],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
def test_a_last_batch_of_one_odd_value_is_refused(value: Any) -> None:
    """Batches whose values all have one type, which numpy would make a float64 of."""
    records = [{"x": n, "price": float(n)} for n in range(4)] + [{"x": 4, "price": value}]
    source = MapSource(records, batch_size=4, epochs=1)
    assert source.batch(0)["price"].tolist() == [0, 1, 2, 3]
    with pytest.raises(SpecError, match=r"^MapSource: record 4: the dataset.*component 'price'"):
        source.batch(1)


def test_tensors_of_torch_are_stacked_at_once() -> None:
    torch = pytest.importorskip("torch")
    records = [(torch.full((2, 3), float(n)), torch.tensor(n)) for n in range(4)]
    for found in (at_once(records), MapSource(records, batch_size=4).batch(0)):
        assert found[0].shape == (4, 2, 3) and found[0].dtype == np.float32 and is_aligned(found[0])
        assert found[1].tolist() == [0, 1, 2, 3] and found[0][:, 1, 2].tolist() == [0, 1, 2, 3]
    bad = [
        torch.ones(2, requires_grad=True),
        torch.ones(3),
        torch.ones(2, dtype=torch.float64),
        torch.nn.Parameter(torch.ones(2)),
    ]
    for other in bad:
        assert at_once([torch.ones(2), other]) is None
