"""Values that a plain array cannot hold are rejected by name with a fix, by every way to feed; others are converted."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples, with_slow
from ways_in import Given, GivenStream, makers, record_file

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.errors import SpecError
from staging_tf1.feed.readers import StreamReader
from staging_tf1.feed.source_errors import SkipRule
from staging_tf1.sources import ArraySource, GeneratorSource, MapSource, RaggedValue, aligned_empty, as_source
from staging_tf1.spec import ArraySpec, infer_spec
from staging_tf1.spec.arrays import as_array
from staging_tf1.spec.conform import conform

pytestmark = pytest.mark.usefixtures("quick_graphs")

_EAGER = tf2.constant([1, 2])


class Int64Dtype:
    """Like a pandas dtype: its name differs from numpy's."""

    name = "Int64"


class IntegerArray:
    """Like a pandas extension array: it has `__array__`, a dtype and one missing value."""

    dtype: Any = Int64Dtype()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1.0, np.nan], dtype)

    def __len__(self) -> int:
        return 2

    def to_numpy(self, dtype: Any, na_value: Any) -> Any:
        raise NotImplementedError


class ArrowArray(IntegerArray):
    """Like a pyarrow array: it has no numpy dtype, but a count of missing values."""

    dtype = None
    null_count = 1


class Strings(IntegerArray):
    """Like a string column of pandas."""

    class Dtype:
        name = "str"

    dtype: Any = Dtype()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(["a", "b"], object)


class Frame:
    """A table with a dtype for each column."""

    def __init__(self, *dtypes: Any) -> None:
        self.dtypes = [np.dtype(dtype) for dtype in dtypes]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros((3, len(self.dtypes)), np.result_type(*self.dtypes))

    def __len__(self) -> int:
        return 3

    def to_numpy(self, dtype: Any, na_value: Any) -> Any:
        raise NotImplementedError


class GradTensor:
    """Like a torch tensor that requires grad."""

    dtype = "torch.float32"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def __len__(self) -> int:
        return 2

    def detach(self) -> Any:
        raise NotImplementedError


class Tensor(GradTensor):
    """Like a torch tensor on the CPU: its array is its memory."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.memory


class CsrMatrix:
    """Like a sparse matrix of scipy, which numpy takes for one object."""

    def toarray(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise TypeError("sparse array length is ambiguous")


def _masked() -> Any:
    return np.ma.array([1.0, -999.0], mask=[False, True])


def _matrix() -> Any:
    with warnings.catch_warnings():  # numpy also advises against it
        warnings.simplefilter("ignore")
        return np.matrix([[1.0, 2.0]])


def _bytearrays() -> Any:
    array = np.empty(1, object)
    array[0] = bytearray(b"a")
    return array


def _symbolic() -> Any:
    with tf.Graph().as_default():
        return tf.constant([1.0, 2.0])


_FLOATS = [("x", "<f4"), ("y", "<f4")]

# The name of a value, the function that makes it, and the words that the message must contain.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (_masked, "got a masked array, and a tensor has no mask: .* array\\.filled\\(value\\)"),
    "without a masked value": (lambda: np.ma.array([1.0, 2.0]), "got a masked array"),
    "masked in a list": (lambda: [_masked(), _masked()], "got a masked array"),
    "masked by its __array__": (lambda: Tensor(_masked()), "got a masked array"),
    "matrix": (_matrix, "got a np\\.matrix, .* np\\.asarray\\(matrix\\)"),
    "structured": (lambda: np.zeros(2, _FLOATS), "do not support\\. Pass the fields .* as a dict: \\{'x': array\\['x'"),
    "recarray": (lambda: np.zeros(2, _FLOATS).view(np.recarray), "do not support\\. Pass the fields"),
    "dates": (lambda: np.zeros(2, "M8[s]"), "has dtype datetime64\\[s\\], .* array\\.astype\\(np\\.int64\\)\\.$"),
    "times": (lambda: np.zeros(2, "m8[ns]"), "has dtype timedelta64\\[ns\\], .* array\\.astype\\(np\\.int64\\)\\.$"),
    "long doubles": (lambda: np.zeros(2, "g"), "do not support\\. Cast it: array\\.astype\\(np\\.float64\\)\\.$"),
    "long complex": (lambda: np.zeros(2, "G"), "do not support\\. Cast it: array\\.astype\\(np\\.complex128\\)\\.$"),
    "raw bytes": (lambda: np.zeros(2, "V3"), "has dtype \\|V3, which tensors do not support\\. Cast it"),
    "an extension array": (
        IntegerArray,
        "got a test_refused_values\\.IntegerArray with dtype .*Int64.*, which converts to an array of float64: .*"
        "Convert it and choose how to fill missing values: value\\.to_numpy\\(\\.\\.\\.\\)\\.$",
    ),
    "nulls": (ArrowArray, "ArrowArray with 1 missing values, which a tensor cannot hold\\. .* value\\.to_numpy"),
    "a mixed table": (lambda: Frame("i8", "f8"), "a test_refused_values\\.Frame with dtype int64, .* array of float64"),
    "a tensor with a gradient": (GradTensor, "GradTensor that cannot be converted to .*: Can't call .* value\\.detach"),
    "a sparse matrix": (CsrMatrix, "CsrMatrix, expected an array\\. Make it dense: value\\.toarray\\(\\)\\.$"),
    "a tensor": (_symbolic, "Tensor, expected an array\\. A graph tensor has no value yet: pass it to staged\\(\\) di"),
    "missing": (lambda: np.array([b"a", None]), "the first has type NoneType\\), .* Fill in missing values"),
    "mixed": (lambda: np.array(["a", 1], object), "the first has type int\\), expected numbers or strings\\."),
    "bytearrays": (_bytearrays, "has type bytearray\\), .* bytes\\(value\\)\\.$"),
    "a surrogate": (lambda: np.array(["ok", "a\ud800"]), "got the string .*, which cannot be encoded as UTF-8: '.ud80"),
    "a surrogate object": (lambda: np.array(["a\ud800"], object), "which cannot be encoded as UTF-8"),
    "too large": (lambda: np.array([2**64]), "the first has type int\\)"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> str:
    return record_file(tmp_path_factory.mktemp("records"))


def _of_spec(dtype: Any) -> ArraySpec:
    return ArraySpec(None, dtype)


def _by_source(value: Any, **options: Any) -> Any:
    """Through threads, up to the step."""
    dtype = object if getattr(value, "dtype", None) == np.dtype(object) else np.float64
    with tf.Graph().as_default():
        batch = staging.staged(Given(lambda: value, _of_spec(dtype), **options))
        with staging.StagingSession() as session:
            return session.run(batch)


def _put(value: Any) -> Any:
    with tf.Graph().as_default():
        return staging.StagingArea([tf.float64]).put([value])


def _constant(value: Any) -> Any:
    with tf.Graph().as_default():
        return staging.staged({"x": tf.constant(1.0), "y": value})


# A session takes more time than all other ways together. It calls `conform`, which has every kind.
IN_A_SESSION = list(REFUSED)[:: 1 if with_slow() else 5]


@pytest.mark.parametrize("kind", REFUSED)
def test_every_way_in_refuses_what_is_no_array(kind: str, records: str) -> None:
    make, message = REFUSED[kind]
    ways: dict[str, Callable[[Any], Any]] = {
        **makers(records),
        "a nest": lambda value: infer_spec({"x": (value,)}),
        "a declared generator": lambda value: next(GeneratorSource([value], spec=_of_spec(np.float64)).batches()),
        "a list in a declared component": lambda value: conform(_of_spec(np.float64), [value, value]),
        "put": _put,
    }
    if kind in IN_A_SESSION:
        ways["a source"] = _by_source
        ways["a source that keeps"] = lambda value: _by_source(value, gives_away=False)
    if kind == "a tensor":
        del ways["put"]  # which takes tensors
    if isinstance(make(), np.ndarray):
        ways["a constant"] = _constant
    for way, deliver in ways.items():
        if way.startswith("ArraySource") and not hasattr(type(make()), "__len__"):
            continue
        value = make()
        if way.startswith("ArraySource"):
            deliver = lambda value: ArraySource({"x": value}, batch_size=1)  # noqa: E731
        with pytest.raises(SpecError) as raised:
            deliver(value)
        assert re.search(message, str(raised.value)), f"{way}: {raised.value}"


def test_the_message_names_whose_value_it_is() -> None:
    with pytest.raises(SpecError, match=r"^ArraySource: component 'x' got a masked array, and a tensor has no mask"):
        ArraySource({"x": _masked()}, batch_size=1)
    with pytest.raises(SpecError, match=r"^generator 'g': the first batch: component 'x' got a masked array"):
        GeneratorSource([{"x": _masked()}], name="g").resolve_spec()
    with pytest.raises(SpecError, match=r"^ArraySource: transform's component 'x' got a masked array"):
        ArraySource(np.zeros(2), batch_size=2, transform=lambda batch: {"x": _masked()}).batch(0)
    with pytest.raises(SpecError, match=r"^area 'StagingArea' \(made at .*\): component 0 got a masked array"):
        _put(_masked())


@pytest.mark.parametrize("gives_away", [True, False])
def test_the_check_of_a_source_names_the_component(gives_away: bool) -> None:
    source = Given(lambda: {"x": _masked()}, {"x": _of_spec(np.float64)}, gives_away)
    with tf.Graph().as_default():
        batch = staging.staged(source)
        with pytest.raises(SpecError, match=r"^'staged': batch 0: component 'x' got a masked array"):
            with staging.StagingSession() as session:
                session.run(batch)


def test_a_transform_may_give_its_aligned_memory_in_the_other_byte_order() -> None:
    def transform(batch: Any) -> Any:
        swapped = aligned_empty(2, ">i4")
        swapped[:] = [1, 2]
        return swapped

    batch = ArraySource(np.zeros(2), batch_size=2, transform=transform).batch(0)
    assert batch.dtype.isnative and batch.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (Frame("f4", "f4"), np.float32),
        (Strings(), object),
        (Tensor(np.zeros(2, np.float32)), np.float32),
        (_EAGER, np.int32),
        (memoryview(np.zeros(2, ">i2")), np.int16),
        (bytearray(b"ab"), np.uint8),
        (np.float32(1), np.float32),
        (np.zeros(2, np.float32).view(np.recarray), np.float32),
        ([Tensor(np.zeros(2, np.float32)), np.zeros(2, ">f4")], np.float32),
        ("text", object),
        ([b"a", "b"], object),
        ([], np.float64),
    ],
)
def test_what_is_just_as_exact_is_converted(value: Any, dtype: Any) -> None:
    array = as_array(value, None, "x")
    assert type(array) is np.ndarray and array.dtype == dtype and array.dtype.isnative


def test_trailing_zero_bytes_of_python_strings_stay() -> None:
    for value in (b"a\0", [b"a\0"], [[b"a\0", "b\0"]], np.array([b"a\0"], object)):
        assert np.ravel(as_array(value, None, "x"))[0] == b"a\0"
    assert conform(ArraySpec(None, object), [b"\xff\0", "\u00e4"])[0].tolist() == [b"\xff\0", "\u00e4".encode()]


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        ([2**63, -1], None, "no integer dtype holds both -1 and 9223372036854775808"),
        ([2**64], np.int64, "18446744073709551616 does not fit"),
        ([2**60, 0.5], np.int64, "0.5 does not fit"),
        ([1.0, 1e30], np.int64, "1e\\+30 does not fit"),
        ([-1], np.uint64, "-1 does not fit"),
        ([float("nan")], np.uint8, "cannot be converted to uint8 values: nan does not fit"),
        ([2], np.bool_, "2 does not fit"),
        ([1e40], np.float32, "1e\\+40 does not fit"),
        (
            2**60 + 1,
            np.float64,
            f"{2**60 + 1} would be rounded to {2**60}\\. Declare int64, or pass float\\(value\\) to round it\\.$",
        ),
        ([2**53 + 1, 0.5], np.float64, f"{2**53 + 1} would be rounded to {2**53}\\. Declare int64"),
        ([2**53 + 1, 0.5], None, f"{2**53 + 1} would be rounded to {2**53}\\. Declare int64"),
        ([[0], [-(2**24) - 1]], np.float32, f"-{2**24 + 1} would be rounded to -{2**24}\\. Declare int64"),
        ((1, np.int32(2**24 + 1)), np.float32, f"{2**24 + 1} would be rounded to {2**24}\\. Declare int64"),
        ([np.array(0.5), 2**60 + 1], None, f"{2**60 + 1} would be rounded to {2**60}\\. Declare int64"),
        ([np.array(0.5), np.int64(2**53 + 1)], np.float64, f"{2**53 + 1} would be rounded to {2**53}\\. Declare int64"),
        (([np.array(2**53 + 1)], [0.5]), None, f"{2**53 + 1} would be rounded to {2**53}\\. Declare int64"),
        (
            [np.array([-(2**53) - 1]), np.array([0.5])],
            None,
            f"-{2**53 + 1} would be rounded to -{2**53}\\. Declare int64",
        ),
        (2**24 + 1, np.complex64, f"{2**24 + 1} would be rounded to {2**24}\\. Declare int64"),
        ([2049], np.float16, "2049 would be rounded to 2048\\. Declare int64"),
        (257, ml_dtypes.bfloat16, "257 would be rounded to 256\\. Declare int64"),
        ([2**64 - 1], np.float64, f"{2**64 - 1} would be rounded to {2**64}\\. Declare uint64, or pass"),
        (
            [2**70 + 1],
            np.float64,
            f"rounded to {2**70}\\. No integer dtype holds it: pass float\\(value\\) to round it",
        ),
        ([10**300], np.float32, "0 does not fit\\.$"),
        (10**400, np.float64, "int too large to convert to float"),
        ([8], ml_dtypes.int4, "8(\\.0)? does not fit"),
        ([1 + 2j], np.int32, "does not fit"),
        ([1 + 2j], np.float32, "cannot be converted to float32 values"),
        ([1, "a"], None, "the first has type int"),
        ([[1, 2], [3]], np.float32, "cannot be converted to float32 values"),
        ([None], np.float32, "the first has type NoneType"),
        ({1, 2}, np.float32, "got a set, expected an array"),
        ({"a": 1}, None, "got a dict with the keys 'a', expected an array"),
    ],
)
def test_python_values_that_lose_something_are_refused(value: Any, dtype: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"^x .*{message}"):
        as_array(value, None if dtype is None else np.dtype(dtype), "x")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2**53, np.float64),
        ([2**60, 0.5, True], np.float64),
        ([-(2**70)], np.float64),
        ([2**24, 2**24 + 2], np.float32),
        ([float(2**60 + 1)], np.float32),
        (float(2**24 + 1), np.float32),
        ([2**24 + 1, 0.5], np.float64),
        ([1, float("inf"), 2**60], np.float64),
        (3000, np.float16),
        ([], np.float32),
    ],
)
def test_integers_that_a_float_dtype_holds_and_all_floats_are_converted(value: Any, dtype: Any) -> None:
    assert np.array_equal(as_array(value, np.dtype(dtype), "x"), np.array(value, np.float64).astype(dtype))


@settings(max_examples=examples(100))
@given(
    values=st.lists(st.integers(-(2**65), 2**65) | st.integers(-(2**12), 2**12) | st.floats(width=16), min_size=1),
    dtype=st.sampled_from([np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16]),
)
def test_no_integer_is_rounded_to_a_float(values: Any, dtype: Any) -> None:
    try:
        array = as_array(values, np.dtype(dtype), "x")
    except SpecError:
        return
    held = array.real.astype(np.float64).tolist()
    assert all(type(each) is float or each == number for each, number in zip(values, held, strict=True))


def test_identifiers_beside_a_float_are_refused_by_name() -> None:
    said = f"{2**60 + 1} would be rounded to {2**60}\\. Declare int64, or pass float\\(value\\) to round it\\.$"
    with pytest.raises(SpecError, match=rf"^MapSource: record 1: the dataset: component 'id' got .* {said}"):
        MapSource([{"id": 0.0}, {"id": 2**60 + 1}], batch_size=2, epochs=1).batch(0)
    for rows in ([[0.5], [2**60 + 1]], [[0.5, 2**60 + 1]]):
        with pytest.raises(SpecError, match=rf"^RaggedValue\.from_rows\(\) got .* {said}"):
            RaggedValue.from_rows(rows)
    assert RaggedValue.from_rows([[0.5], [float(2**60 + 1)]]).to_list() == [[0.5], [2.0**60]]
    assert RaggedValue.from_rows([[1], [2**60 + 1]]).to_list() == [[1], [2**60 + 1]]


def test_a_dtype_that_is_not_as_declared_is_told_with_a_cure_that_works() -> None:
    for wanted, value, cure in (
        (np.float32, np.zeros(2), r"Cast it: array\.astype\(np\.float32\), or declare float64\."),
        (np.bool_, np.zeros(2), r"Cast it: array\.astype\('bool'\), or declare float64\."),
        (object, np.zeros(2), r"Convert it to strings, or declare float64\."),
        (np.float32, np.array(["a"]), r"Convert the strings to numbers, or declare a string\."),
    ):
        with pytest.raises(SpecError, match=cure):
            conform(ArraySpec(None, wanted), value)


def nested(depth: int, leaf: Any, kind: type) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf} if kind is dict else [leaf]
    return leaf


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("depth", [330, 5000])
def test_a_deep_nest_is_delivered_or_refused(kind: type, depth: int, tmp_path: Path) -> None:
    record = nested(depth, np.arange(3), kind)
    ways: dict[str, Callable[[], Any]] = {
        "cached": lambda: sources.cached([record, record], tmp_path / "cache", batch_size=1).batch(0),
        "MapSource": lambda: sources.MapSource([record, record], batch_size=1).batch(0),
        "ArraySource": lambda: ArraySource(record, batch_size=1).batch(0),
        "generator": lambda: as_source([record]).resolve_spec(),
        "staged()": lambda: staging.staged(nested(depth, tf.zeros([2]), kind)),
    }
    refused = set()
    for name, way in ways.items():
        try:
            with tf.Graph().as_default():
                way()
        except (RecursionError, SpecError):
            refused.add(name)
    assert depth < 5000 or refused == ways.keys()
    assert (tmp_path / "cache").exists() == ("cached" not in refused)


@pytest.mark.parametrize("nest", [{"a.b": 1, "a": {"b": 2}}, {"a[0]": 1, "a": (2,)}, {"": {"a": 1}, "a": 2}])
def test_two_components_of_one_path_are_refused(nest: Any) -> None:
    arrays = {key: {"b": np.ones(2)} if isinstance(value, dict) else np.ones(2) for key, value in nest.items()}
    message = r"two components have the path 'a(\.b|\[0\])?', their name in messages and cast=\. Rename a key\.$"
    with pytest.raises(SpecError, match=message):
        infer_spec(nest)
    if "a.b" in nest:
        with pytest.raises(SpecError, match=message):
            ArraySource(arrays, batch_size=1)
        with pytest.raises(SpecError, match=message):
            GeneratorSource([arrays]).resolve_spec()
        with tf.Graph().as_default(), pytest.raises(SpecError, match=message):
            staging.staged({"a.b": tf.constant(1), "a": {"b": tf.constant(2)}})


def test_eager_tensors_belong_to_no_graph() -> None:
    with tf.Graph().as_default():
        message = r"^staged\(\) got an eager tensor, int32 \[2\], which belongs to no graph\. .* tensor\.numpy\(\)\.$"
        with pytest.raises(SpecError, match=message):
            staging.staged(_EAGER)


@pytest.mark.parametrize("value", [Frame("f4"), Tensor(np.zeros(2)), "abc", b"abc", (Tensor(np.zeros(2)),) * 2])
def test_what_is_one_array_or_text_is_no_iterable_of_batches(value: Any) -> None:
    with pytest.raises(TypeError, match="expected batches"):
        as_source(value)


def test_a_dtype_without_tensors_is_refused_where_it_is_declared() -> None:
    with tf.Graph().as_default(), pytest.raises(SpecError, match=r"^TensorFlow .* has no tensors of dtype datetime64"):
        staging.staged(GeneratorSource([np.zeros(2)], spec=ArraySpec((None,), "M8[s]")))


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros(2),
        np.array([b"first", b"first"], object),
        np.array(["first", "first"], object),
        np.array(["first"]),
        np.zeros(2, ">i4"),
        Tensor(np.zeros(2, np.float32)),
        memoryview(bytearray(b"ab")),
    ],
    ids=["numbers", "bytes", "objects", "text", "swapped", "tensor", "buffer"],
)
def test_a_buffer_that_is_written_again_changes_no_batch_that_was_taken(buffer: Any) -> None:
    reader = StreamReader(GivenStream(lambda: {"x": buffer}, None), SkipRule(), 0)
    taken = reader.take()
    assert taken is not None
    before = as_array(taken.batch["x"], None, "x").tolist()
    memory = np.asarray(buffer)
    memory[...] = b"later" if memory.dtype == object else 7
    assert as_array(taken.batch["x"], None, "x").tolist() == before != as_array(buffer, None, "x").tolist()
