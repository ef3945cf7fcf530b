"""TensorFlow's functions that walk, copy or rewrite a whole graph, over one that holds a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

ROWS = np.arange(24, dtype=np.float32).reshape(12, 2)


def source(dtype: Any = np.float32) -> ArraySource:
    return ArraySource(ROWS.astype(dtype), batch_size=2, epochs=1)


def batches() -> Iterator[Any]:
    yield from ROWS.reshape(6, 2, 2)


def from_an_iterator() -> Any:
    """Stage tensors of the program. A step that ran their ops would take elements from its iterator."""
    elements = tf.data.Dataset.from_tensor_slices(ROWS).batch(2)
    return staging.staged(tf.data.make_one_shot_iterator(elements).get_next() * 1)


def in_old_loops() -> Any:
    """Stage with the loops of TensorFlow 1, as after `tf.disable_v2_behavior()`."""
    tf.disable_control_flow_v2()
    try:
        return staging.staged(source())
    finally:
        tf.enable_control_flow_v2()


# Each gives the batches of ROWS in order.
PIPELINES: dict[str, Callable[[], Any]] = {
    "blocks": lambda: staging.staged(source()),
    "blocks of TensorFlow 1": in_old_loops,
    "cast in blocks": lambda: staging.staged(source(np.uint8), cast=tf.float32),
    "generator": lambda: staging.staged(batches),
    "map_fn": lambda: staging.staged(source(), map_fn=lambda batch: tf.sqrt(batch * batch)),
    "lockstep": lambda: staging.staged(source(), lockstep=True),
    "towers": lambda: tf.stack(staging.staged(source(), devices=["/cpu:0"] * 2), axis=1),
    "dataset": lambda: staging.staged(tf.data.Dataset.from_tensor_slices(ROWS).batch(2)),
    "tensors": from_an_iterator,
    "runner": lambda: staging.CustomRunner(source(), queue="fifo").get_inputs(),
    "runner of records": lambda: staging.CustomRunner(source(), queue="fifo", batch_size=2).get_inputs(),
}


@pytest.fixture(params=PIPELINES)
def batch(request: Any) -> Iterator[Any]:
    """What steps get of each pipeline, in a graph of its own."""
    with tf.Graph().as_default():
        yield PIPELINES[request.param]()


def test_add_check_numerics_ops_checks_what_steps_compute(batch: Any) -> None:
    loss = tf.reduce_sum(1.0 / (batch - 5.0))
    check = tf.add_check_numerics_ops()
    taken, failed = 0, 0
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            try:
                taken += sess.run([batch, loss, check])[0].size
            except tf.errors.InvalidArgumentError as error:
                assert "Tensor had Inf" in str(error)
                failed += 1
    # One batch, or one of each tower, has the value 5.
    assert failed == 1 and taken == ROWS.size - (8 if batch.shape.rank == 3 else 4)


def test_a_graph_is_differentiated_exported_and_imported(batch: Any) -> None:
    (gradient,) = tf.gradients(tf.reduce_sum(batch * batch), batch)
    exported = tf.train.export_meta_graph()
    value = np.ones([2, 2, 2] if batch.shape.rank == 3 else [2, 2])
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        tf.train.import_meta_graph(exported)
        tf.import_graph_def(exported.graph_def, name="copy")
        for scope in ("", "copy/"):
            got = sess.run(scope + gradient.name, {scope + batch.name: value})
            assert (got == 2).all() and graph is sess.graph
    total = 0.0
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            total += sess.run(gradient).sum()
    assert total == 2 * ROWS.sum()


def test_variables_become_constants_except_those_of_the_pipeline(batch: Any) -> None:
    weights = tf.get_variable("weights", [2], initializer=tf.ones_initializer())
    tf.identity(batch * weights, name="made")
    # A get counts in variables. Those of the position are global, those of the figures are in no collection.
    own = [op.name for op in batch.graph.get_operations() if op.type == "VarHandleOp" and op.name != "weights"]
    value = np.ones([2, 2, 2] if batch.shape.rank == 3 else [2, 2])
    with staging.StagingSession() as sess:
        definition = sess.graph.as_graph_def()
        frozen = tf.graph_util.convert_variables_to_constants(sess, definition, ["made"], variable_names_blacklist=own)
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.import_graph_def(frozen, name="")
        assert (sess.run("made:0", {batch.name: value}) == 1).all()
