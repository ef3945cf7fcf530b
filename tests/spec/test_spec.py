"""Specs: their text in messages, and structures that agree with tf.nest."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from staging_tf1.errors import SpecError
from staging_tf1.spec import ArraySpec, describe, flatten, flatten_with_paths, map_structure, pack
from staging_tf1.spec.conform import conform

Point = collections.namedtuple("Point", "x y")

_NESTS: list[Any] = [
    1,
    (1, 2),
    [1, (2, 3)],
    {"b": 1, "a": 2},
    {"b": {"d": 1, "c": 2}, "a": (3, [4])},
    Point(1, {"k": 2}),
    collections.OrderedDict([("z", 1), ("a", 2)]),
    (),
]


@pytest.mark.parametrize("nest", _NESTS)
def test_structures_are_those_of_tf_nest(nest: Any) -> None:
    assert flatten(nest) == tf.nest.flatten(nest)
    numbers = list(range(10, 10 + len(flatten(nest))))
    packed = pack(nest, numbers)
    assert packed == tf.nest.pack_sequence_as(nest, numbers)
    assert type(packed) is type(nest) or not isinstance(nest, (dict, tuple, list))
    assert map_structure(str, nest) == tf.nest.map_structure(str, nest)


def test_paths_name_components_as_users_write_them() -> None:
    nest = {"obs": Point(1, [2, {"deep": 3}]), "act": 4}
    assert flatten_with_paths(nest) == [("act", 4), ("obs.x", 1), ("obs.y[0]", 2), ("obs.y[1].deep", 3)]
    assert flatten_with_paths((5, 6)) == [("[0]", 5), ("[1]", 6)]
    assert flatten_with_paths(7) == [("", 7)]


def test_dtypes_and_shapes_of_either_library_read_alike() -> None:
    assert describe(tf.int32, tf.TensorShape([32])) == describe(np.int32, (32,)) == "int32 [32]"
    assert describe(tf.float32, tf.TensorShape([None, 784])) == "float32 [?, 784]"
    assert describe(tf.string, tf.TensorShape(None)) == describe(np.dtype("S3"), None) == "string of any shape"
    assert describe(tf.bfloat16, []) == "bfloat16 []"
    assert describe(np.dtype("U7"), (2,)) == "string [2]"


def test_array_specs_take_tensor_specs_parts() -> None:
    spec = ArraySpec(tf.TensorShape([None, 3]), tf.string, "name")  # type: ignore[arg-type]
    assert spec.shape == (None, 3) and spec.dtype == np.dtype(object)
    assert tf.TensorSpec(spec.shape, tf.as_dtype(spec.dtype)) == tf.TensorSpec([None, 3], tf.string)


def test_leaves_must_be_as_many_as_the_structure_holds() -> None:
    with pytest.raises(SpecError, match=r"^got more leaves than the 2 of the structure$"):
        pack((0, 0), [1, 2, 3])
    with pytest.raises(SpecError, match=r"^got fewer leaves than the structure has$"):
        pack((0, 0), [1])


def test_keys_that_cannot_be_sorted_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^the keys of a dict of components must be sortable, .* Use strings\.$"):
        flatten({1: 0, "a": 0})


def test_lists_of_numbers_are_leaves_where_the_spec_has_one() -> None:
    spec = {"x": ArraySpec((None, 2), np.float32), "n": ArraySpec((), np.int64)}
    arrays = conform(spec, {"x": [[1, 2], [3, 4]], "n": 5})
    assert [array.dtype.name for array in arrays] == ["int64", "float32"]
