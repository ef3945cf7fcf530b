"""The values of a batch arrive byte for byte as with `feed_dict`: dtypes x layouts x ways to feed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from slow import examples
from ways_in import Pipelines, makers, record_file

import staging_tf1 as staging
from staging_tf1.spec.arrays import as_array

Array = np.ndarray[Any, Any]

_NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
_SMALL = [name for name in "bfloat16 float8_e5m2 float8_e4m3fn int4 uint4".split() if hasattr(ml_dtypes, name)]


class Annotated(np.ndarray):  # type: ignore[type-arg]
    """An array with an extra attribute, as in many libraries."""

    note = "pixels"


def _fortran(array: Array) -> Array:
    return np.asfortranarray(array)


def _reversed(array: Array) -> Array:
    return array[::-1].copy()[::-1] if array.ndim else array


def _strided(array: Array) -> Array:
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


def _repeated(array: Array) -> Array:
    return np.broadcast_to(array[:1], array.shape) if array.ndim else array


def _at_an_odd_address(array: Array) -> Array:
    if array.dtype.hasobject:
        return array
    shifted = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    return shifted


def _on_a_boundary(array: Array) -> Array:
    """Return the array at an address where TensorFlow reads it without a copy."""
    if array.dtype.hasobject:
        return array
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def _read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def _swapped(array: Array) -> Array:
    return array if array.dtype.kind == "T" else array.astype(array.dtype.newbyteorder(">"))


LAYOUTS: dict[str, Callable[[Array], Any]] = {
    "plain": lambda array: array,
    "in Fortran order": _fortran,
    "with a negative stride": _reversed,
    "with gaps": _strided,
    "with a stride of zero": _repeated,
    "at an odd address": _at_an_odd_address,
    "on a boundary": _on_a_boundary,
    "read-only": _read_only,
    "a subclass": lambda array: array.view(Annotated),
    "in the other byte order": _swapped,
    "in the other byte order with gaps": lambda array: _strided(_swapped(array)),
    "in the other byte order at an odd address": lambda array: _at_an_odd_address(_swapped(array)),
}
# These have no dtype except the declared one.
_AS_DECLARED = {
    "a list": lambda array: array.tolist(),
    "a list of arrays": lambda array: list(array) if array.ndim else array,
    "a scalar of numpy": lambda array: array[()],
}


def _some(dtype: Any) -> Array:
    """Return an array whose values show how their bytes were read."""
    if dtype == tf.string:
        return np.array([[b"a\0", "\u00e4", b"\xff"], [b"", "\0b\0", b"c"]], object)
    size = 6 * np.dtype(dtype.as_numpy_dtype).itemsize
    return np.arange(1, size + 1, dtype=np.uint8).view(dtype.as_numpy_dtype).reshape(2, 3)


@st.composite
def numbers(draw: Any, tf_dtype: Any) -> Array:
    """Return an array of arbitrary bytes, with bools other than 0 and 1 and NaNs with a payload."""
    dtype = tf_dtype.as_numpy_dtype
    shape = draw(st.sampled_from([(2, 3), (2, 3), (1,), (3, 1, 2), (0, 3), ()]))
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)


@st.composite
def texts(draw: Any) -> Array:
    """Return strings in every form that numpy has."""
    letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    element = st.one_of(letters, letters.map(str.encode), st.binary(max_size=4), st.just(b"a\0\0"), st.just("b\0"))
    shape = draw(st.sampled_from([(2, 3), (1,), (0, 3), ()]))
    elements = draw(st.lists(element, min_size=math.prod(shape), max_size=math.prod(shape)))
    array = np.empty(len(elements), object)
    array[:] = elements
    array = array.reshape(shape)
    kinds: list[Any] = [object]
    if all(isinstance(each, str) for each in elements):
        kinds += ["U4", ">U4"] + ([np.dtypes.StringDType()] if hasattr(np.dtypes, "StringDType") else [])
    if all(isinstance(each, bytes) for each in elements):
        kinds += ["S4"]
    return array.astype(draw(st.sampled_from(kinds)))


def _same(got: Any, wanted: Any, how: str) -> None:
    got, wanted = (np.asarray(each, object if isinstance(each, bytes) else None) for each in (got, wanted))
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), how
    if got.dtype.hasobject:
        assert got.tolist() == wanted.tolist(), how
    else:
        assert got.tobytes() == wanted.tobytes(), how


def _sorted_rows(array: Array) -> Array:
    return (
        np.array(sorted(np.asarray(array).tolist()), object)
        if array.dtype.hasobject
        else array[sorted(range(len(array)), key=lambda row: array[row].tobytes())]
    )


def _as_a_constant(array: Array) -> Array:
    """Return what a constant in a graph keeps of an array: the truth of bools, and only that a value is NaN."""
    if np.asarray(array).dtype == bool:
        return np.asarray(array).view(np.uint8) != 0
    if np.asarray(array).dtype.kind in "OS":
        return array
    return np.where(array != array, 0, array) if np.size(array) == 1 else array


# The differences that are allowed, by pipeline.
_DIFFERENCES = {"records": _sorted_rows}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> str:
    return record_file(tmp_path_factory.mktemp("records"))


# Numbers of another width: test_dtypes_and_ranks.py stages each dtype.
@pytest.mark.slow_cases("u?int(16|32)|u?int[48]|float(16|32|8_.*)|complex.*")
@pytest.mark.parametrize("name", [*_NUMBERS, *_SMALL, "string"])
def test_every_way_in_delivers_what_feed_dict_delivers(name: str, records: str) -> None:
    try:
        dtype = tf.as_dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        pytest.skip(f"this TensorFlow has no {name}")
    ways, layouts = makers(records), LAYOUTS | _AS_DECLARED

    with Pipelines(dtype) as pipelines:

        def check(array: Array, layout: str, named: list[str]) -> None:
            value = layouts[layout](array)
            # feed_dict of TensorFlow 2.21 drops digits of lists in which one integer exceeds int64.
            exceeds = dtype == tf.uint64 and layout in _AS_DECLARED and (array > np.iinfo(np.int64).max).any()
            wanted = pipelines.plain_feed(array if exceeds else value)
            for pipeline in named:
                if pipelines.takes(pipeline, np.shape(wanted)):
                    kept = _DIFFERENCES.get(pipeline, lambda array: array)
                    _same(kept(pipelines.deliver(pipeline, value)), kept(wanted), f"{layout}, by {pipeline}")
            if layout not in _AS_DECLARED and np.ndim(wanted) and len(wanted):
                for way, make in ways.items():
                    _same(pipelines.deliver("source", make(value)), wanted, f"{layout}, by {way}")

        for layout in layouts:
            check(_some(dtype), layout, pipelines.names)
        laid_out = [layouts[layout](_some(dtype)) for layout in layouts]
        for layout, value, got in zip(layouts, laid_out, pipelines.put(laid_out), strict=True):
            _same(_as_a_constant(got), _as_a_constant(pipelines.plain_feed(value)), f"{layout}, by put")
        values = texts() if dtype == tf.string else numbers(dtype)
        # Not by put, which would make a graph for each. test_areas.py tries arbitrary values for it.
        named = st.just(pipelines.names)
        arbitrary = given(array=values, layout=st.sampled_from(sorted(layouts)), named=named)(check)
        settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])(arbitrary)()


@pytest.mark.parametrize("value", [[0, 2**63 + 256], [[0, 0], [2**64 - 1, 0]], [2**63 - 1, 2**63]], ids=str)
def test_a_list_of_integers_keeps_its_digits(value: Any) -> None:
    # numpy makes floats of a list in which one integer exceeds int64.
    assert as_array(value, np.dtype(np.uint64), "batch 0").tolist() == value
    with tf.Graph().as_default(), tf.Session() as session:
        area = staging.StagingArea([tf.uint64])
        session.run(area.put([value]))
        assert session.run(area.get())[0].tolist() == value
