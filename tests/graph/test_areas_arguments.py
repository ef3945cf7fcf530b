"""StagingArea rejects invalid constructor arguments by name before it makes an op."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.errors import SpecError
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as graph:
        yield graph


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


@pytest.mark.parametrize(("arguments", "kind", "message"), REFUSED, ids=lambda value: str(value)[:40])
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


def test_an_element_that_is_put_may_not_exceed_the_limit_either() -> None:
    area = StagingArea([tf.int32], memory_limit=16)
    with pytest.raises(SpecError, match=r"^area 'StagingArea' .*an element has 20 bytes, more than memory_limit=16"):
        area.put([tf.zeros([5], tf.int32)])
    area.put([tf.zeros([4], tf.int32)])


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
