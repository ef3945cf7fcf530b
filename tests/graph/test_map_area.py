"""MapStagingArea: keys, order, incomplete elements, partial gets, and the messages of rejected calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.errors import SpecError
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.map_area import MapStagingArea

pytestmark = pytest.mark.usefixtures("graph")


def test_get_takes_by_key_and_returns_the_key_as_given() -> None:
    area = MapStagingArea([tf.int32, tf.string], shapes=[[], []])
    key, value = tf.placeholder(tf.int64, []), tf.placeholder(tf.int32, [])
    put, (same, element), peeked = area.put(key, [value, "s"]), area.get(key), area.peek(key)
    assert same is key and isinstance(element, list) and element[0].shape.rank == 0
    with tf.Session() as sess:
        for k in (1, 2, 3):
            sess.run(put, {key: k, value: 10 * k})
        assert sess.run(peeked, {key: 2}) == [20, b"s"]
        assert sess.run(element, {key: 3}) == [30, b"s"]
        assert sess.run(area.size()) == 2
        sess.run(area.clear())
        assert sess.run(area.size()) == 0


def test_an_ordered_area_gives_the_smallest_key_first() -> None:
    area = MapStagingArea([tf.int64], ordered=True)
    key = tf.placeholder(tf.int64, [])
    put, (taken, element) = area.put(key, [key * 2]), area.get()
    with tf.Session() as sess:
        for k in (5, -3, 8, 0):
            sess.run(put, {key: k})
        assert [sess.run((taken, element)) for _ in range(4)] == [(k, [2 * k]) for k in (-3, 0, 5, 8)]
    assert area.ordered


def test_parts_are_put_one_by_one_and_taken_one_by_one() -> None:
    area = MapStagingArea([tf.float32, tf.int32], names=["x", "n"])
    put_x, put_n = area.put(7, {"x": 1.5}), area.put(7, {"n": 3})
    _, n = area.get(7, indices=["n"])
    _, x = area.get(7, indices=[0])
    size, incomplete = area.size(), area.incomplete_size()
    with tf.Session() as sess:
        sess.run(put_x)
        assert sess.run([size, incomplete]) == [0, 1]
        sess.run(put_n)
        assert sess.run([size, incomplete]) == [1, 0]
        assert sess.run(n) == {"n": 3}
        assert sess.run(size) == 1
        assert sess.run(x) == {"x": np.float32(1.5)}
        assert sess.run(size) == 0


def test_indices_say_which_components_a_list_gives() -> None:
    area = MapStagingArea([tf.float32, tf.int32, tf.string])
    first, rest = area.put(1, [2, "c"], indices=[1, 2]), area.put(1, 0.5, indices=[0])
    _, got = area.get(1)
    with tf.Session() as sess:
        sess.run([first, rest])
        assert sess.run(got) == [0.5, 2, b"c"]


def test_from_tensors_and_the_register() -> None:
    area = MapStagingArea.from_tensors({"b": tf.zeros([2]), "a": tf.zeros([], tf.int64)}, capacity=3)
    assert (area.names, area.capacity, area.ordered) == (["a", "b"], 3, False)
    assert areas_of(tf.get_default_graph()) == [area]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (1.5, r"put takes an int64 scalar as key, got 1\.5 \(float\)\. Hash it to an integer"),
        ("k", r"got 'k' \(str\)"),
        (True, "got True"),
        (2**63, "Give a 64-bit integer"),
    ],
)
def test_keys_are_checked(graph: Any, key: Any, message: str) -> None:
    area = MapStagingArea([tf.int32])
    before = len(graph.get_operations())
    with pytest.raises(SpecError, match=message):
        area.put(key, [1])
    assert len(graph.get_operations()) == before


def test_keys_that_are_tensors_are_checked() -> None:
    area = MapStagingArea([tf.int32])
    with pytest.raises(SpecError, match=r"got int32 \[\]\. Cast it: tf\.cast\(key, tf\.int64\)\."):
        area.put(tf.constant(1), [1])
    with pytest.raises(SpecError, match=r"get takes an int64 scalar as key, got int64 \[2\]"):
        area.get(tf.constant([1, 2], tf.int64))


@pytest.mark.parametrize(
    ("values", "indices", "kind", "message"),
    [
        ([1], None, SpecError, r"put got 1 values, expected 2, one per component\. .*name them: indices"),
        ([1, 2, 3], None, SpecError, "put got 3 values for 2 components"),
        ([1, 2], [0], SpecError, "put got 2 values for 1 components"),
        ([1], [2], ValueError, r"indices=\[2\], but its components are numbered 0 to 1"),
        ([1, 1], [0, 0], ValueError, "each component may appear only once"),
        ([1], ["a"], ValueError, "but the area has no names; use indices"),
        ([1], [], ValueError, "name at least one component"),
        ([1], 0, TypeError, "they must be a list of component indices or names"),
        ([1], [0.0], TypeError, r"0\.0 is neither the index nor the name of a component"),
        ([1.5], [0], SpecError, r"component 0 got 1\.5 \(a Python float\), declared int32"),
        ([], [], SpecError, "put got no values"),
    ],
)
def test_puts_that_do_not_fit_are_refused(values: Any, indices: Any, kind: type[Exception], message: str) -> None:
    area = MapStagingArea([tf.int32, tf.int32])
    with pytest.raises(kind, match=rf"^area 'MapStagingArea' \(made at test_map_area\.py:\d+\): .*{message}"):
        area.put(1, values, indices=indices)


def test_names_and_numbers_of_components_are_checked() -> None:
    area = MapStagingArea([tf.int32, tf.int32], names=["a", "b"])
    with pytest.raises(ValueError, match=r"'c' is not among its names \['a', 'b'\]"):
        area.get(1, indices=["c"])
    with pytest.raises(TypeError, match="give either indices or names, not both"):
        area.peek(1, indices=["a", 1])
    with pytest.raises(ValueError, match="the keys of a dict name the components, leave indices out"):
        area.put(1, {"a": 1}, indices=["b"])
