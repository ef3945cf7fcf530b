"""The ops with which a session finds out whether its variables have values: TensorFlow's answers, from fewer ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.graph.uninitialized import uninitialized_names

READY = (tf.GraphKeys.READY_FOR_LOCAL_INIT_OP, tf.GraphKeys.READY_OP)


def ready_ops(graph: Any) -> list[Any]:
    """The ops of both collections, which have one each."""
    found = [graph.get_collection(key) for key in READY]
    assert [len(each) for each in found] == [1, 1]
    return [each[0] for each in found]


def variables(*kinds: str) -> list[Any]:
    """Make a variable of each kind."""
    make: dict[str, Callable[[str], Any]] = {
        "resource": lambda name: tf.get_variable(name, initializer=1.0, use_resource=True),
        "ref": lambda name: tf.Variable([1, 2], use_resource=False, name=name),
        "partitioned": lambda name: tf.get_variable(
            name, [4], initializer=tf.zeros_initializer(), partitioner=tf.fixed_size_partitioner(2)
        ),
        "local": lambda name: tf.Variable("text", collections=[tf.GraphKeys.LOCAL_VARIABLES], name=name),
    }
    return [make[kind](f"{kind}_{number}") for number, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    "kinds",
    [("resource",), ("ref", "resource"), ("partitioned", "local"), ("local",), ("local", "ref", "local", "resource")],
    ids="-".join,
)
def test_the_answers_are_those_of_tensorflow(graph: Any, kinds: tuple[str, ...]) -> None:
    variables(*kinds)
    every = [*tf.global_variables(), *tf.local_variables()]
    theirs = [tf.report_uninitialized_variables(tf.global_variables()), tf.report_uninitialized_variables()]
    with staging.StagingSession():
        own = ready_ops(graph)
    for chosen in ([], every[::2], every):
        with tf.Session(graph=graph) as sess:
            sess.run([each.initializer for each in chosen])
            answers, expected = sess.run([own, theirs])
        assert [each.tolist() for each in answers] == [each.tolist() for each in expected]
        assert len(answers[1]) == len(every) - len(chosen)


def test_one_op_answers_where_there_are_no_local_variables(graph: Any) -> None:
    x = staging.staged(tf.get_variable("x", initializer=1.0) + 1.0)
    with staging.StagingSession() as sess:
        assert sess.run(x) == 2.0
        before, after = ready_ops(graph)
        assert before is after is uninitialized_names(graph)
    assert len([op for op in graph.get_operations() if op.type == "DynamicPartition"]) == 1


def test_what_the_program_has_given_stays(graph: Any) -> None:
    tf.get_variable("x", initializer=1.0)
    given = tf.constant([], tf.string)
    with staging.StagingSession(scaffold=tf.train.Scaffold(ready_op=given)):
        assert graph.get_collection(tf.GraphKeys.READY_OP) == []
    with tf.Graph().as_default() as other:
        tf.get_variable("x", initializer=1.0)
        tf.add_to_collection(tf.GraphKeys.READY_OP, tf.constant([], tf.string, name="given"))
        with staging.StagingSession():
            assert ready_ops(other)[1].op.name == "given"


class Late(tf.train.Scaffold):  # type: ignore[misc]
    """Makes a variable that nobody initializes, when it is finalized."""

    def finalize(self) -> Any:
        """See base class."""
        if not tf.get_default_graph().finalized:
            self._init_op = tf.global_variables_initializer()
            tf.get_variable("late", initializer=1.0)
        return super().finalize()


def test_a_variable_that_the_scaffold_makes_is_not_forgotten(graph: Any) -> None:
    tf.get_variable("x", initializer=1.0)
    with pytest.raises(RuntimeError, match="Variables not initialized: late"):
        staging.StagingSession(scaffold=Late())


@pytest.mark.parametrize("collection", [tf.GraphKeys.RESOURCES, tf.GraphKeys.LOCAL_RESOURCES])
def test_resources_are_asked_for_too(graph: Any, collection: str) -> None:
    from tensorflow.python.ops import resources

    tf.get_variable("x", initializer=1.0)
    handle = tf.constant("a resource")
    resources.register_resource(handle, tf.no_op(), tf.constant(False), is_shared=collection == tf.GraphKeys.RESOURCES)
    with pytest.raises(RuntimeError, match=f"not initialized: {handle.name}"):
        staging.StagingSession()
