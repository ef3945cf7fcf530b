"""The device of an area's store, the areas that share it, and the areas recorded for a graph."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.errors import BuildError, SpecError
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea

LINE = r"\(made at test_areas_stores\.py:\d+\)"


pytestmark = pytest.mark.usefixtures("graph")


def cpus(count: int) -> Any:
    return tf.ConfigProto(device_count={"CPU": count})


# ---- devices


def test_size_peek_and_clear_act_on_the_areas_device_from_anywhere() -> None:
    with tf.device("/cpu:1"):
        area = StagingArea([tf.int32])
    with tf.device("/cpu:2"):
        put, size, peeked, clear = area.put([5]), area.size(), area.peek(0), area.clear()
    with tf.Session(config=cpus(3)) as sess:
        sess.run(put)
        assert sess.run(area.size()) == 1
        assert sess.run(size) == 1
        assert sess.run(peeked) == [5]
        sess.run(clear)
        assert sess.run(size) == 0
    assert (area.device, size.device, clear.device) == ("/device:CPU:1",) * 3


def test_what_get_returns_follows_the_scope_of_the_call() -> None:
    with tf.device("/cpu:1"):
        area = StagingArea([tf.int32])
        here = area.get()[0]
    with tf.device("/cpu:2"):
        there = area.get()[0]
    assert (here.op.type, here.device) == ("Unstage", "/device:CPU:1")
    assert (there.op.type, there.device) == ("Identity", "/device:CPU:2")


# ---- stores


def test_the_same_shared_name_shares_the_store() -> None:
    with tf.device("/cpu:1"):
        first = StagingArea([tf.int32], shared_name="s", capacity=2)
    second = StagingArea([tf.int32], shared_name="s", capacity=2)
    put, got, size = first.put([3]), second.get(), second.size()
    with tf.Session(config=cpus(2)) as sess:
        sess.run(put)
        assert sess.run(size) == 1
        assert sess.run(got) == [3]
    assert second.device == "/device:CPU:1"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"capacity": 3}, r"has capacity=3, expected capacity=2"),
        ({"capacity": 2, "memory_limit": 9}, r"has memory_limit=9, expected memory_limit=0"),
        (
            {"capacity": 2, "dtypes": [tf.int64]},
            r"has dtypes=\['int64'\], expected dtypes=\['int32'\]",
        ),
    ],
)
def test_the_same_shared_name_declared_otherwise_is_refused(graph: Any, other: dict[str, Any], message: str) -> None:
    StagingArea([tf.int32], shared_name="s", capacity=2)
    before = len(graph.get_operations())
    with pytest.raises(SpecError, match=rf"^area 's' {LINE} shares its name with area 's' {LINE}, but {message}"):
        StagingArea(**{"dtypes": [tf.int32], "shared_name": "s", **other})
    assert len(graph.get_operations()) == before


def test_an_unnamed_area_never_shares() -> None:
    StagingArea([tf.int32], shared_name="StagingArea")
    assert StagingArea([tf.int32]).name != "StagingArea"
    with tf.name_scope("tower_0"):
        assert StagingArea([tf.int32]).name == "tower_0/StagingArea"


def test_the_ops_of_raw_code_count_as_areas() -> None:
    tf.raw_ops.Stage(values=[tf.constant(1)], shared_name="raw", capacity=4)
    with pytest.raises(SpecError, match=r"shares its name with the op '.*', but has capacity=1, expected"):
        StagingArea([tf.int32], shared_name="raw", capacity=1)


# ---- used by StagingSession


def test_cached_ops_are_made_once_and_not_after_finalize(graph: Any) -> None:
    area = StagingArea([tf.int32])
    assert area.clear_op() is area.clear_op()
    assert area.size_op() is area.size_op()
    late = StagingArea([tf.int32])
    graph.finalize()
    assert area.clear_op() is not None
    with pytest.raises(BuildError, match="clear was requested after the graph was finalized"):
        late.clear_op()
    assert areas_of(graph) == [area, late]
