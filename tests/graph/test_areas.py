"""StagingArea: the return values of its methods, the names of its ops, and the messages of rejected calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from slow import examples

from staging_tf1.errors import BuildError, SpecError
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea

# Made outside any graph: an eager tensor, or an array if v2 behaviour is off in this process.
EAGER = tf.constant([1.0, 2.0]) if tf.executing_eagerly() else np.float32([1.0, 2.0])
LINE = r"\(made at test_areas\.py:\d+\)"


pytestmark = pytest.mark.usefixtures("graph")


# Forms of elements.


def test_peek_leaves_the_element_and_clear_drops_all() -> None:
    area = StagingArea([tf.int32])
    value = tf.placeholder(tf.int32, [])
    put, second, size, clear = area.put([value]), area.peek(tf.constant(1, tf.int64)), area.size(), area.clear()
    with tf.Session() as sess:
        for i in (10, 11, 12):
            sess.run(put, {value: i})
        assert sess.run(second) == [11]
        assert sess.run(size) == 3
        sess.run(clear)
        assert sess.run(size) == 0


def test_properties_say_what_was_declared() -> None:
    area = StagingArea(
        ["float32", np.int64],
        shapes=[[None, 2], None],
        names=("a", "b"),
        capacity=np.int32(3),
        memory_limit=4096,
    )
    assert area.name == "StagingArea"
    assert area.dtypes == [tf.float32, tf.int64]
    assert area.shapes[0].as_list() == [None, 2] and area.shapes[1].rank is None
    assert area.names == ["a", "b"]
    assert (area.capacity, area.memory_limit) == (3, 4096)


def test_capacity_bounds_what_is_held() -> None:
    area = StagingArea([tf.int32], capacity=2)
    put, got, size = area.put([1]), area.get(), area.size()
    with tf.Session() as sess:
        sess.run(put)
        sess.run(put)
        third = threading.Thread(target=sess.run, args=[put])
        third.start()
        # The third put can only finish after a get has freed a slot, and the third get after that put.
        for _ in range(3):
            assert sess.run(got) == [1]
        third.join(30)
        assert not third.is_alive()
        assert sess.run(size) == 0


def test_names_of_ops_follow_the_name_argument() -> None:
    area = StagingArea([tf.int32], shared_name="any name: at all!")
    assert area.name == "any name: at all!"
    assert area.put([1], name="stow").name == "stow"
    assert area.get(name="fetch")[0].op.name == "fetch"
    assert area.size(name="count").op.name == "count"
    assert area.clear(name="wipe").name == "wipe"
    assert area.peek(0, name="look")[0].op.name == "look"


# Values.


def test_python_values_are_made_of_the_declared_dtype() -> None:
    area = StagingArea([tf.float32, tf.int64, tf.float64, tf.bool, tf.string, tf.uint8, tf.bfloat16, tf.complex64])
    put = area.put([[1.0], 3, 2, True, ["a", b"b\0"], [[255]], 0.5, 1])
    got = area.get()
    with tf.Session() as sess:
        sess.run(put)
        values = sess.run(got)
    assert [v.dtype.name if hasattr(v, "dtype") else "" for v in values[:3]] == [
        "float32",
        "int64",
        "float64",
    ]
    assert values[4].tolist() == [b"a", b"b\0"]
    assert values[5].tolist() == [[255]]


def test_variables_are_read_when_put_runs_and_what_is_staged_stays() -> None:
    with tf.variable_scope("v", use_resource=False):
        reference = tf.get_variable("ref", initializer=1.0)
    with tf.variable_scope("r", use_resource=True):
        resource = tf.get_variable("res", initializer=2.0)
    area = StagingArea([tf.float32, tf.float32, tf.float32])
    put = area.put([reference, resource, reference.op.outputs[0]])
    got, change = area.get(), tf.group(reference.assign(10.0), resource.assign(20.0))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(put)
        sess.run(change)
        assert sess.run(got) == [1.0, 2.0, 1.0]


def test_eager_tensors_and_partitioned_variables_are_values_too() -> None:
    parts = tf.get_variable("v", [4], initializer=tf.ones_initializer(), partitioner=tf.fixed_size_partitioner(2))
    area = StagingArea([tf.float32, tf.float32])
    put, got = area.put([EAGER, parts]), area.get()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(put)
        assert [v.tolist() for v in sess.run(got)] == [[1.0, 2.0], [1.0] * 4]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            np.zeros([32], np.int32),
            r"got int32 \[32\], .*Convert it: label\.astype\('int64'\)",
        ),
        (1.5, r"got 1\.5 \(a Python float\), declared int64 \[32\]\. Put a value of that dtype"),
        (True, r"got True \(a Python bool\), declared int64 \[32\]"),
        ("x", r"got 'x' \(a Python str\), declared int64 \[32\]"),
        (None, r"got None \(a Python NoneType\), declared int64 \[32\]"),
        ([1, [2]], "got a list of 2 that cannot be converted to int64 values: "),
        ([2**63], "got a list of 1 that cannot be converted to int64 values: 9223372036854775808 does not fit"),
        ([1, 2], r"got int64 \[2\], declared int64 \[32\]\. Reshape it, or declare None for the dimensions that vary"),
    ],
)
def test_values_that_do_not_fit_are_refused_and_add_no_op(graph: Any, value: Any, message: str) -> None:
    area = StagingArea([tf.int64], shapes=[[32]], names=["label"], shared_name="train")
    before = len(graph.get_operations())
    with pytest.raises(SpecError, match=rf"^area 'train' {LINE}: component 'label' .*({message})"):
        area.put({"label": value})
    assert len(graph.get_operations()) == before


def test_a_dtype_mismatch_reads_like_this() -> None:
    area = StagingArea([tf.int64], shapes=[[32]], names=["label"], shared_name="train")
    with pytest.raises(SpecError) as caught:
        area.put({"label": tf.placeholder(tf.int32, [32])})
    assert str(caught.value) == (
        f"area 'train' (made at test_areas.py:{area.made_at.lineno}): component 'label' got int32 [32], "
        "declared int64 [32]. Cast it: tf.cast(label, tf.int64), or let staged() take the spec "
        "from the values."
    )


def test_all_components_that_do_not_fit_are_named() -> None:
    area = StagingArea([tf.int64, tf.float32, tf.uint8], shapes=[[2], [2], [2]], names=["a", "b", "c"])
    with pytest.raises(SpecError) as caught:
        area.put({"a": tf.zeros([2]), "b": tf.zeros([3]), "c": [1, 2]})
    assert str(caught.value) == (
        f"{area}: 2 components do not fit:\n"
        "  component 'a' got float32 [2], declared int64 [2]. Cast it: tf.cast(a, tf.int64), or let staged() take the "
        "spec from the values.\n"
        "  component 'b' got float32 [3], declared float32 [2]. Reshape it, or declare None for the dimensions that "
        "vary."
    )


def in_another_graph() -> Any:
    with tf.Graph().as_default():
        return tf.constant(1.0, name="stranger")


NAMED = dict(dtypes=[tf.float32, tf.int32], names=["x", "y"])
# The arguments of an area, what is put into it, and the message.
NOT_PUT: list[tuple[dict[str, Any], Callable[[], Any], str]] = [
    (dict(dtypes=[tf.float32]), lambda: [2**24 + 1], "component 0 got an int .* 16777217 would be rounded to 16777216"),
    (dict(dtypes=[tf.uint8]), lambda: [256], "component 0 got an int .* uint8 values: 256 does not fit"),
    (dict(dtypes=[tf.float32]), lambda: [1e300], r"component 0 got a float .* float32 values: 1e\+300 does not fit"),
    (
        dict(dtypes=[tf.float32]),
        lambda: [tf.SparseTensor([[0]], [1.0], [1])],
        r"component 0 got a SparseTensor.*staged\(\) takes SparseTensor",
    ),
    (dict(dtypes=[tf.float32]), lambda: [[tf.constant(1.0)] * 2], r"got a list of tensors.*tf\.stack\(\[\.\.\.\]\)"),
    (dict(dtypes=[tf.float32]), lambda: [tf.constant("x")], r"component 0 got string \[\].*Strings cannot be cast"),
    (dict(dtypes=[tf.float32]), lambda: [in_another_graph()], "component 0 got 'stranger:0', which belongs to a diffe"),
    (dict(dtypes=[tf.float32] * 2), lambda: [1.0], r"put got 1 value, expected 2, .* \(component 1 missing\)\."),
    (dict(dtypes=[tf.float32] * 2), lambda: [1.0, 2, 3], r"put got 3 values, expected 2, one per component\."),
    (dict(dtypes=[tf.float32]), lambda: {"x": 1.0}, r"put got a dict, but the area has no names\..*names=\['x'\]"),
    (
        dict(dtypes=[tf.int32], memory_limit=16),
        lambda: [tf.zeros([5], tf.int32)],
        r"^area 'StagingArea' .*an element has 20 bytes, more than memory_limit=16",
    ),
    (dict(dtypes=[tf.float64]), lambda: [[0.5, 2**60 + 1]], rf"{2**60 + 1} would be rounded to {2**60}. Declare int64"),
    (NAMED, lambda: {"x": 1.0}, r"put got 1 value, .*\(component 'y' missing\)"),
    (NAMED, lambda: {"x": 1.0, "z": 2}, r"put got unknown name 'z', expected \['x', 'y'\]\."),
    (NAMED, lambda: [1.0, 2], r"put got a list, but the area has names\. Put a dict with the keys"),
    (NAMED, lambda: 1.0, "put got a single value, but the area has names"),
]


@pytest.mark.parametrize(
    ("area", "make", "message"), NOT_PUT, ids=lambda value: value[:40] if isinstance(value, str) else None
)
def test_what_is_no_element_of_the_area_is_refused(area: dict[str, Any], make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        StagingArea(**area).put(make())


def test_an_area_is_used_in_its_own_graph() -> None:
    area = StagingArea([tf.float32])
    with tf.Graph().as_default() as other:
        for call in (area.get, area.size, area.clear, lambda: area.put([1.0]), lambda: area.peek(0)):
            with pytest.raises(BuildError, match=r"while another graph is the default.*area\.graph\.as_default"):
                call()
        assert other.get_operations() == []


# from_tensors.


def test_from_tensors_takes_dtypes_shapes_and_names() -> None:
    tensors = {"y": tf.placeholder(tf.int64, [None]), "x": np.zeros([2, 3], np.float32)}
    area = StagingArea.from_tensors(tensors, capacity=4, memory_limit=100)
    assert (area.names, area.dtypes) == (["x", "y"], [tf.float32, tf.int64])
    assert [s.as_list() for s in area.shapes] == [[2, 3], [None]]
    assert (area.capacity, area.memory_limit) == (4, 100)
    got, put = area.get(), area.put(tensors)
    with tf.Session() as sess:
        sess.run(put, {tensors["y"]: [5]})
        assert sess.run(got)["y"].tolist() == [5]
    given = tf.TensorSpec([1], tf.int32), tf.get_variable("v", [3])
    two = StagingArea.from_tensors(given, ["a", "b"], memory_limit=16)
    assert two.names == ["a", "b"] and two.dtypes == [tf.int32, tf.float32], "of just as many bytes as the limit"


@pytest.mark.parametrize(
    ("tensors", "names", "kind", "message"),
    [
        ([], None, ValueError, "got no tensors"),
        ({"x": np.zeros(1)}, ["x"], ValueError, "the keys of a dict are the names"),
        ({1: np.zeros(1)}, None, TypeError, r"keys \[1\]; component names must be strings"),
        ([1.0], None, TypeError, "component 0 is a float.*tf.convert_to_tensor"),
    ],
)
def test_from_tensors_refuses(tensors: Any, names: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        StagingArea.from_tensors(tensors, names=names)


# Arguments.


# What each argument alone may be is in `test_arguments.py`.
ONE: dict[str, Any] = {"dtypes": [tf.int32]}
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dtypes": [1.5]}, TypeError, r"got dtypes\[0\]=1\.5, expected a list of dtypes, such as \[tf\.float32"),
    ({"dtypes": ["flaot32"]}, TypeError, r"got dtypes\[0\]='flaot32', "),
    ({"dtypes": tf.float32}, TypeError, r"got dtypes=tf\.float32, expected a list with one dtype per component, such"),
    ({"dtypes": {"x": tf.float32}}, TypeError, r" got dtypes=\{'x': tf\.float32\}, expected a list with one dtype per"),
    ({"dtypes": []}, ValueError, "got no dtypes; an element needs at least one component"),
    ({**ONE, "shapes": [[1], [2]]}, ValueError, "shapes has 2 entries, dtypes has 1"),
    ({**ONE, "shapes": ["a"]}, ValueError, r"got shapes=\['a'\], expected a list with one shape per component"),
    ({**ONE, "names": ["a", "b"]}, ValueError, "names has 2 entries, dtypes has 1"),
    ({"dtypes": [tf.int8] * 2, "names": ["a", "a"]}, ValueError, r"got names=\['a', 'a'\], .* each of them once"),
    ({**ONE, "shared_name": ""}, ValueError, "shared_name is empty"),
    ({**ONE, "shapes": [[5]], "memory_limit": 19}, SpecError, r"an element has 20 bytes, more than memory_limit=19"),
    ({**ONE, "shapes": [[2**29]], "memory_limit": 2**40}, SpecError, "has 2147483648 bytes, and TensorFlow miscounts"),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"), REFUSED, ids=lambda value: value[:40] if isinstance(value, str) else None
)
def test_wrong_arguments_are_refused_and_add_no_op(
    graph: Any, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=rf"^StagingArea.*{message}"):
        StagingArea(**arguments)
    assert graph.get_operations() == []
    assert areas_of(graph) == []


def test_tensors_in_place_of_dtypes_are_told_of_from_tensors() -> None:
    images = tf.placeholder(tf.float32)
    for dtypes in ([images], images, [tf.float32, images]):
        with pytest.raises(
            TypeError, match=r"got dtypes.*Tensor.*StagingArea\.from_tensors\(\[\.\.\.\]\) takes tensors\."
        ):
            StagingArea(dtypes)


@pytest.mark.parametrize(
    ("index", "kind", "message"),
    [
        (-1, ValueError, r"peek\(-1\) would wait forever"),
        (2, ValueError, "0 or more and below the capacity, 2"),
        (1.0, TypeError, r"got index=1\.0"),
        (True, TypeError, "got index=True"),
    ],
)
def test_peek_refuses_what_could_never_be_there(index: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        StagingArea([tf.int32], capacity=2).peek(index)


# Any values.


DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "uint16", "bool", "complex64"]


@st.composite
def elements(draw: Any) -> list[np.ndarray[Any, Any]]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes))
    return draw(st.lists(arrays, min_size=1, max_size=4))  # type: ignore[no-any-return]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(
    arrays=elements(),
    named=st.booleans(),
    given_as=st.sampled_from(["array", "tensor", "placeholder", "python"]),
    declare_shapes=st.booleans(),
    puts=st.integers(1, 3),
)
def test_round_trip(arrays: list[Any], named: bool, given_as: str, declare_shapes: bool, puts: int) -> None:
    with tf.Graph().as_default():
        area = StagingArea(
            [a.dtype for a in arrays],
            shapes=[a.shape for a in arrays] if declare_shapes else None,
            names=[f"n{i}" for i in range(len(arrays))] if named else None,
        )
        if given_as == "python" and all(a.size for a in arrays):
            values, feed = [a.tolist() for a in arrays], {}
        elif given_as == "placeholder":
            values = [tf.placeholder(a.dtype, a.shape) for a in arrays]
            feed = dict(zip(values, arrays, strict=True))
            values = list(values)
        else:
            values, feed = [tf.constant(a) if given_as == "tensor" else a for a in arrays], {}
        put = area.put(dict(zip(area.names, values, strict=True)) if area.names else values)
        got, size = area.get(), area.size()
        with tf.Session() as sess:
            for _ in range(puts):
                sess.run(put, feed)
            assert sess.run(size) == puts
            for _ in range(puts):
                out = sess.run(got)
                listed = [out[name] for name in area.names] if area.names else out
                for array, back in zip(arrays, listed, strict=True):
                    assert back.dtype == array.dtype
                    np.testing.assert_array_equal(back, array)
            assert sess.run(size) == 0
