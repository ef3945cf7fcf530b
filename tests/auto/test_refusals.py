"""`auto_stage()`: every refusal says what to do, and leaves the graph as it was, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import Counted

import staging_tf1 as staging
from staging_tf1.errors import AutoStageError


@pytest.fixture(autouse=True)
def graph() -> Any:
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        yield graph


def numbers() -> Any:
    return tf.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next()


def train(x: Any) -> Any:
    """Add a train op whose loss depends on `x` and a variable."""
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    return tf.train.GradientDescentOptimizer(0.1).minimize(w * tf.cast(x, tf.float32))


def fed() -> None:
    train(tf.placeholder(tf.float32, []))


def fed_with_a_default() -> None:
    train(tf.placeholder_with_default(1.0, []))


def string_handle() -> None:
    iterator = tf.data.Iterator.from_string_handle(tf.placeholder(tf.string, []), tf.int64, [])
    train(iterator.get_next())


def second_reader_of_an_iterator() -> None:
    iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(6))
    iterator.get_next()
    train(iterator.get_next())


def second_reader_of_a_queue() -> None:
    queue = tf.FIFOQueue(4, tf.float32, [])
    queue.dequeue()
    train(tf.log1p(queue.dequeue()))


def step_that_fills_its_queue() -> None:
    queue = tf.FIFOQueue(4, tf.float32, [])
    x = queue.dequeue()
    w = tf.get_variable("v", initializer=1.0, use_resource=True)
    with tf.control_dependencies([queue.enqueue(w)]):
        train(tf.identity(x))


def own_area() -> None:
    area = staging.StagingArea([tf.int64], [[]])
    area.put(numbers())
    train(area.get()[0])


def staged_by_hand() -> None:
    train(staging.staged(numbers()))


def staged_twice() -> None:
    train(numbers())
    staging.auto_stage()


def saved_iterator() -> None:
    iterator = tf.data.make_one_shot_iterator(tf.data.Dataset.range(6))
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator))
    train(iterator.get_next())


def no_input() -> None:
    train(2.0)


def no_train_op() -> None:
    numbers()


def input_behind_a_variable() -> None:
    count = tf.get_variable("count", initializer=0.0, use_resource=True)
    with tf.control_dependencies([count.assign_add(1.0).op]):
        train(numbers())


def finalized() -> None:
    train(numbers())
    tf.get_default_graph().finalize()


def on_servers() -> None:
    with tf.device("/job:worker/task:1"):
        train(numbers())


def only_a_dequeue() -> None:
    train(tf.train.batch([tf.constant(1.0)], 1)[0])


def only_a_prefetched_dataset() -> None:
    train(tf.data.make_one_shot_iterator(tf.data.Dataset.range(6).prefetch(1)).get_next())


def only_a_prefetched_initializable_dataset() -> None:
    train(tf.data.make_initializable_iterator(tf.data.Dataset.range(6).prefetch(1)).get_next())


def begun_again(make: Callable[[Any], None]) -> Callable[[], None]:
    """A step whose iterator is also initialized by what `make` adds."""

    def build() -> None:
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(6))
        train(iterator.get_next())
        make(iterator)

    return build


def within_a_cond(iterator: Any) -> None:
    def begin() -> Any:
        with tf.control_dependencies([iterator.make_initializer(tf.data.Dataset.range(9), name="again")]):
            return tf.constant(1)

    tf.cond(tf.placeholder(tf.bool, []), begin, lambda: tf.constant(0))


def in_each_step(iterator: Any) -> None:
    (step,) = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
    tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)[:] = [tf.group(step, iterator.initializer)]


REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "only fed input": (fed, r"the step's input is fed \(Placeholder\).*Use staged\(\) or CustomRunner"),
    "a placeholder with a default": (fed_with_a_default, r"the step's input is fed \(PlaceholderWithDefault\)"),
    "a string handle": (string_handle, "the step's input is fed"),
    "a second reader of an iterator": (
        second_reader_of_an_iterator,
        "'IteratorGetNext' reads the same input as 'IteratorGetNext_1'.*Give it an iterator or queue of its own",
    ),
    "a second reader of a queue": (second_reader_of_a_queue, "reads the same input as .*queue of its own"),
    "a step that fills its queue": (step_that_fills_its_queue, "the step fills the queue that it reads.*queue runner"),
    "an area of its own": (own_area, "the graph's own staging area .*so its input already runs ahead"),
    "staged by hand": (staged_by_hand, "the graph already has the pipeline 'staged' .*whose input runs ahead"),
    "staged twice": (staged_twice, "the graph already has the pipeline 'auto_stage'"),
    "a saved iterator": (saved_iterator, "saves the state of an iterator.*CheckpointInputPipelineHook"),
    "no input": (no_input, "depends on no iterator, queue, reader or Python function"),
    "no train op": (no_train_op, r"no train op in the collection .*auto_stage\(train_op\)"),
    "an input behind a variable": (input_behind_a_variable, "'IteratorGetNext' cannot run ahead"),
    "a finalized graph": (finalized, "finalized"),
    "a step on servers": (on_servers, r"the step runs on servers \(/job:worker/task:1\).*staged\(..., cluster=\)"),
    "an initializer in a cond": (
        begun_again(within_a_cond),
        r"'\S+Switch' passes the input of 'IteratorGetNext' on, into a cond or loop.*Initialize and read it outside",
    ),
    "an initializer in a step": (
        begun_again(in_each_step),
        "'MakeIterator' initializes the iterator of 'IteratorGetNext' in each step. Run it on its own",
    ),
    "only a dequeue": (only_a_dequeue, "nothing is worth moving.*what another thread has prepared"),
    "only a prefetched dataset": (only_a_prefetched_dataset, "nothing is worth moving: 'IteratorGetNext'"),
    "the same, initialized": (only_a_prefetched_initializable_dataset, "nothing is worth moving: 'IteratorGetNext'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_why_and_changes_nothing(case: str, graph: Any) -> None:
    build, words = REFUSED[case]
    build()
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    collections = {name: graph.get_collection(name) for name in graph.get_all_collection_keys()}
    with pytest.raises((AutoStageError, staging.errors.BuildError), match=words):
        staging.auto_stage()
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before
    assert {name: graph.get_collection(name) for name in graph.get_all_collection_keys()} == collections


ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an unknown name": ({"keep": ["nothing:0"]}, AutoStageError, "'nothing:0' in keep, expected tensors"),
    "a tensor within a loop": ({"keep": ["while/Mul:0"]}, AutoStageError, "keep='while/Mul:0' is within a loop"),
    "a train op of another graph": ({"train_op": tf.Graph}, AutoStageError, "train_op=.*expected ops or tensors"),
    "a device that is none": ({"device": 3}, TypeError, "device=3, expected a string"),
    "capacity": ({"capacity": 0}, ValueError, "capacity=0"),
    "threads": ({"num_threads": -1}, ValueError, "num_threads=-1"),
    "measure": ({"measure": "yes"}, TypeError, "measure='yes'"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_an_invalid_argument_is_refused_and_changes_nothing(case: str, graph: Any) -> None:
    arguments, error, words = ARGUMENTS[case]
    train(tf.while_loop(lambda x: x < 100, lambda x: tf.multiply(x, 2) + 1, [numbers()]))
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    with pytest.raises(error, match=words):
        staging.auto_stage(**arguments)
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before


def test_a_session_that_has_run_is_refused_until_it_is_closed(graph: Any) -> None:
    model = Counted()
    staging.auto_stage(dry_run=True)
    with tf.Session() as sess:
        staging.auto_stage(dry_run=True)
        model.init(sess)
        before = graph.as_graph_def().SerializeToString(deterministic=True)
        with pytest.raises(AutoStageError, match="has run and is open"):
            staging.auto_stage()
        assert graph.as_graph_def().SerializeToString(deterministic=True) == before
    assert staging.auto_stage().pipelines == ("auto_stage",)
