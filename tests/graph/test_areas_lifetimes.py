"""Lifetime and visibility of a store: sessions, servers, imported graphs, branches, functions."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from forked import ForkServer

from staging_tf1.errors import SpecError
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.map_area import MapStagingArea

pytestmark = pytest.mark.usefixtures("graph")


def test_each_session_of_this_process_has_stores_of_its_own() -> None:
    area = StagingArea([tf.int32], shared_name="s")
    put, size = area.put([1]), area.size()
    with tf.Session() as first, tf.Session() as second:
        first.run(put)
        assert (first.run(size), second.run(size)) == (1, 0)


def test_a_store_on_a_server_is_shared_and_outlives_its_session() -> None:
    server = tf.train.Server.create_local_server()
    area = StagingArea([tf.int32], shared_name="on_server")
    value = tf.placeholder(tf.int32, [])
    put, got, size, clear = area.put([value]), area.get(), area.size(), area.clear_op()
    with tf.Session(server.target) as first, tf.Session(server.target) as second:
        first.run(put, {value: 4})
        assert second.run(size) == 1
        assert second.run(got) == [4]
        first.run(put, {value: 5})
    with tf.Session(server.target) as later:
        assert later.run(size) == 1
        later.run(clear)
        assert later.run(size) == 0


@pytest.mark.parametrize("v2", [False, True])
def test_put_and_get_stand_in_branches(v2: bool) -> None:
    with tf.device("/cpu:1"):
        area = StagingArea([tf.int32], shapes=[[]])
    choose, value = tf.placeholder(tf.bool, []), tf.placeholder(tf.int32, [])

    def put() -> Any:
        with tf.control_dependencies([area.put([value])]):
            return tf.constant(-1)

    switch = (tf.enable_control_flow_v2, tf.disable_control_flow_v2)
    was = tf.control_flow_v2_enabled()
    switch[0 if v2 else 1]()
    try:
        either = tf.cond(choose, put, lambda: area.get()[0])
    finally:
        switch[0 if was else 1]()
    size = area.size()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert sess.run(either, {choose: True, value: 6}) == -1
        assert sess.run(size) == 1
        assert sess.run(either, {choose: False, value: 0}) == 6
        assert sess.run(size) == 0


def test_an_area_is_used_in_a_function_of_its_graph() -> None:
    with tf.device("/cpu:1"):
        area = StagingArea([tf.float32], shapes=[[]])

    @tf2.function
    def put_and_count(x: Any) -> Any:
        with tf.control_dependencies([area.put([x])]):
            return area.size()

    count, got = put_and_count(tf.constant(2.0)), area.get()
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert sess.run(count) == 1
        assert sess.run(got) == [2.0]


def test_a_graph_with_areas_is_freed() -> None:
    graph = tf.Graph()
    with graph.as_default():
        StagingArea([tf.float32]).put([1.0])
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_ops_run_after_export_and_import(tmp_path: Path) -> None:
    area = StagingArea([tf.int32], names=["x"], shared_name="kept", capacity=2)
    put, got = area.put({"x": 9}), area.get()
    meta = tf.train.export_meta_graph(str(tmp_path / "graph.meta"))
    with tf.Graph().as_default() as imported:
        tf.train.import_meta_graph(meta)
        assert areas_of(imported) == []
        with tf.Session() as sess:
            sess.run(put.name)
            assert sess.run(got["x"].name) == 9
        # The imported ops keep the names and declarations of their stores.
        again = StagingArea([tf.int32], shared_name="kept", capacity=2)
        with pytest.raises(SpecError, match=r"'kept'.*shares its name with the op '.*', but has capacity=5"):
            StagingArea([tf.int32], shared_name="kept", capacity=5)
        size = again.size()
        with tf.Session() as sess:
            sess.run(put.name)
            assert sess.run(size) == 1


def test_an_area_after_an_import_takes_no_imported_name() -> None:
    StagingArea([tf.int32]).put([1])
    meta = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(meta)
        assert StagingArea([tf.float32]).name != "StagingArea"


def test_map_areas_that_were_imported_are_known_by_their_kind() -> None:
    MapStagingArea([tf.int32, tf.string], names=["a", "b"], shared_name="m", ordered=True).get(indices=["b"])
    meta = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(meta)
        # The other kind of area has its own names, and a get of one component does not show the other components.
        StagingArea([tf.float32], shared_name="m", capacity=3)
        MapStagingArea([tf.int32, tf.string], shared_name="m", ordered=True)
        with pytest.raises(SpecError, match="has capacity=1, expected capacity=0"):
            MapStagingArea([tf.int32, tf.string], shared_name="m", ordered=True, capacity=1)


# A fork of a process that has imported this package does without it from here on.
WITHOUT_US = """
import sys
for name in [name for name in sys.modules if name.startswith('staging_tf1')]:
    del sys.modules[name]
"""


def test_a_saved_graph_needs_no_package_of_ours(tmp_path: Path, fork_server: ForkServer) -> None:
    area = StagingArea([tf.int32])
    put, got = area.put([9]), area.get()
    tf.train.export_meta_graph(str(tmp_path / "graph.meta"))
    program = (
        "import sys, tensorflow.compat.v1 as tf\n"
        f"tf.disable_v2_behavior(); tf.train.import_meta_graph({str(tmp_path / 'graph.meta')!r})\n"
        f"sess = tf.Session(); sess.run({put.name!r}); assert sess.run({got[0].name!r}) == 9\n"
        "assert not any(name.startswith('staging_tf1') for name in sys.modules)\n"
    )
    child = fork_server.run("-c", WITHOUT_US + program, cwd=tmp_path, whole_end=True)
    assert child.returncode == 0, child.stderr


def test_an_area_keeps_its_container() -> None:
    with tf.container("mine"):
        area = StagingArea([tf.int32])
    with tf.container("other"):
        put = area.put([1])
    assert put.get_attr("container") == b"mine"
    assert area.size().op.get_attr("container") == b"mine"
