"""A run may feed part of a batch, or what is made of it: it takes one batch, counts it and gives its slot back.

Grappler drops control edges that an identity stands for. So each of its passes is tried alone, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from slow import with_all, with_slow
from tensorflow.core.protobuf import rewriter_config_pb2

import staging_tf1 as staging
from staging_tf1.sources import ArraySource, Source

RECORDS = 600
FED = 5.0

# What is fed, made of a component. Every element of it has the value of the component's elements.
PARTS: dict[str, Callable[[Any], Any]] = {
    "component": lambda x: x,
    "identity": tf.identity,
    "default": lambda x: tf.placeholder_with_default(x, [2]),
    "mean": tf.reduce_mean,
    "cast": lambda x: tf.cast(x, tf.float64),
    "reshape": lambda x: tf.reshape(x, [2, 1]),
    "first": lambda x: x[0],
    "stop_gradient": tf.stop_gradient,
    "after a group": lambda x: tf.tuple([x], control_inputs=[tf.group(x)])[0],
}


def _assigned(part: Any, y: Any) -> Any:
    variable = tf.get_variable("assigned", [], initializer=tf.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([variable.assign(tf.reduce_mean(part - y))]):
        return variable.read_value()


def _after(part: Any, y: Any) -> Any:
    with tf.control_dependencies([part]):
        return tf.identity(y)


def _looped(part: Any, y: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 2, lambda i, value: (i + 1, value + part), [0, y])[1]


# An op that reads what is fed and another component, and what it gives for the values of their elements.
OPS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float, float], float]]] = {
    "subtract": (lambda part, y: part - y, lambda part, y: part - y),
    "multiply": (lambda part, y: part * y, lambda part, y: part * y),
    "squares": (tf.math.squared_difference, lambda part, y: (part - y) ** 2),
    "sum": (lambda part, y: tf.add_n([part + 0 * y, y, y]), lambda part, y: part + 2 * y),
    "concat": (lambda part, y: tf.concat([part + 0 * y, y], 0), lambda part, y: (part + y) / 2),
    "cond": (
        lambda part, y: tf.cond(tf.reduce_mean(part) >= 0, lambda: part - y, lambda: y),
        lambda part, y: part - y,
    ),
    "assign": (_assigned, lambda part, y: part - y),
    "control edge": (_after, lambda part, y: y),
    "py_func": (
        lambda part, y: tf.ensure_shape(tf.py_func(np.subtract, [part, y], tf.float32), [2]),
        lambda part, y: part - y,
    ),
}

_PASSES = [
    "arithmetic_optimization",
    "common_subgraph_elimination",
    "constant_folding",
    "debug_stripper",
    "dependency_optimization",
    "function_optimization",
    "implementation_selector",
    "layout_optimizer",
    "loop_optimization",
    "pin_to_host_optimization",
    "remapping",
    "scoped_allocator_optimization",
    "shape_optimization",
]
GRAPPLER = ["default", "twice", "none", *_PASSES]
# Those that the default run tries.
USUAL = ("default", "dependency_optimization")


def grappler(which: str) -> Any:
    """Return a config with TensorFlow's own choice of passes, with all twice, with none, or with one alone."""
    rewrite = rewriter_config_pb2.RewriterConfig(min_graph_nodes=-1)
    if which == "none":
        rewrite.disable_meta_optimizer = True
    elif which == "twice":
        rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.TWO
    elif which != "default":
        rewrite.memory_optimization = rewriter_config_pb2.RewriterConfig.NO_MEM_OPT
        for each in _PASSES:
            on = rewriter_config_pb2.RewriterConfig.ON if each == which else rewriter_config_pb2.RewriterConfig.OFF
            setattr(rewrite, each, on)
    return tf.ConfigProto(graph_options=tf.GraphOptions(rewrite_options=rewrite))


def _numbers(towers: int = 1) -> Source:
    """Batch 0, 1, 2... of each tower holds only multiples of `towers`, plus the tower's number."""
    record = np.arange(2 * RECORDS)
    numbers = (towers * (record // (2 * towers)) + record % towers).astype(np.float32)
    return ArraySource({"x": numbers, "y": numbers}, batch_size=2, epochs=1)


def _dataset() -> Any:
    def batch(number: Any) -> dict[str, Any]:
        return dict.fromkeys(("x", "y"), tf.fill([2], tf.cast(number, tf.float32)))

    return tf.data.Dataset.range(RECORDS).map(batch)


def _counted() -> Any:
    """The numbers from a queue of the user's own graph."""
    queue = tf.FIFOQueue(RECORDS, tf.float32, [[]])
    filled = queue.enqueue_many([np.arange(RECORDS, dtype=np.float32)])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [filled]))
    value = tf.fill([2], queue.dequeue())
    return {"x": value, "y": value + 0}


def _zeros() -> Source:
    return ArraySource({"x": np.zeros(2 * RECORDS, np.float32), "y": np.zeros(2 * RECORDS, np.float32)}, batch_size=2)


def _queue(source: Source, **options: Any) -> Any:
    return staging.CustomRunner(source, **options).get_inputs()


KINDS: dict[str, Callable[[], list[Any]]] = {
    "staged": lambda: [staging.staged(_numbers())],
    "dataset": lambda: [staging.staged(_dataset())],
    "tensors": lambda: [staging.staged(_counted())],
    "lockstep": lambda: [staging.staged(_numbers(), lockstep=True)],
    "lockstep dataset": lambda: [staging.staged(_dataset(), lockstep=True)],
    "towers": lambda: staging.staged(_numbers(2), devices=["/cpu:0"] * 2),
    "towers in lockstep": lambda: staging.staged(_numbers(2), devices=["/cpu:0"] * 2, lockstep=True),
    "classic": lambda: [staging.staged(_queue(_numbers(), queue="fifo"))],
    "queue": lambda: [_queue(_numbers(), queue="fifo")],
    # Shuffled: all records are equal.
    "hand-shake": lambda: [_queue(_zeros(), queue="shuffle", capacity=3, min_after_dequeue=0, seed=1)],
}


def _batch(kind: str, number: int, towers: int) -> list[int]:
    """The value of batch `number` of each tower."""
    return [0 if kind == "hand-shake" else number * towers + tower for tower in range(towers)]


def tried(kind: str, which: str) -> list[tuple[str, str]]:
    """Return each part with each op; with unusual passes a third of these pairs, and in the default run a ninth.

    Three kinds together have all, or nine.
    """
    every, row = product(enumerate(PARTS), enumerate(OPS)), [*KINDS].index(kind)
    of = 1 if with_all() or (with_slow() and which == "default") else 3 if with_slow() else 9
    return [(part, op) for (number, part), (other, op) in every if (number + other) % of == row % of]


# Each kind has a third of the unusual passes, and each of them three kinds or four.
CASES = [
    (kind, which)
    for (row, kind), (column, which) in product(enumerate(KINDS), enumerate(GRAPPLER))
    if which in USUAL or (row // 3 + column) % 3 == 0 or with_all()
]


@contextmanager
def session(which: str) -> Iterator[Any]:
    """A session that raises instead of waiting forever."""
    with staging.StagingSession(config=grappler(which), stall_secs=30, stall_raises=True) as sess:
        yield sess


@pytest.mark.matrix_cases(*(f".*-{which}" for which in GRAPPLER if which != "default"))
@pytest.mark.parametrize(("kind", "which"), CASES)
def test_a_run_that_feeds_a_part_gives_its_slot_back(kind: str, which: str) -> None:
    with tf.Graph().as_default():
        towers = KINDS[kind]()
        # Of the first tower a part is fed; the others are read whole in the same run.
        x, y = towers[0]["x"], towers[0]["y"]
        others = [tf.reduce_mean(tower["x"] + tower["y"]) / 2 for tower in towers[1:]]
        whole = [tf.reduce_mean(tower["y"]) for tower in towers]
        positions = [v for v in tf.global_variables() if v.op.name.endswith("/position")]
        runs = []
        parts = {name: make(x) for name, make in PARTS.items()}
        for part_name, op_name in tried(kind, which):
            part, (op, value) = parts[part_name], OPS[op_name]
            fed = np.full(part.shape, FED, part.dtype.as_numpy_dtype)
            read = tf.reshape(tf.cast(part, tf.float32), [-1])
            with tf.variable_scope(f"{part_name}_{op_name}".replace(" ", "_")):
                runs.append((f"{part_name}, {op_name}", tf.reduce_mean(op(read, y)), part, fed, value))
        with session(which) as sess:
            for number, (name, fetch, part, fed, value) in enumerate(runs):
                got, *rest = sess.run([fetch, *others], {part: fed})
                wanted = _batch(kind, number, len(towers))
                assert got == value(FED, wanted[0]), name
                assert rest == wanted[1:], name
            assert sess.run(whole) == _batch(kind, len(runs), len(towers)), "the next run, which feeds nothing"
            assert [stats.batches for stats in sess.stats()[-len(towers) :]] == [len(runs) + 1] * len(towers)
            assert [list(sess.run(position)) for position in positions] == [
                [len(runs) + 1] * len(towers) for _ in positions
            ]


@pytest.mark.matrix_cases(*(f".*-{which}" for which in GRAPPLER if which != "default"))
@pytest.mark.parametrize("which", GRAPPLER)
@pytest.mark.parametrize("ordered", [False, True], ids=["any", "ordered"])
def test_a_map_area_takes_one_element_whatever_part_of_it_is_fed(ordered: bool, which: str) -> None:
    with tf.Graph().as_default(), tf.Session(config=grappler(which)) as sess:
        area = staging.MapStagingArea([tf.float32] * 2, [[2], [2]], ordered=ordered, capacity=2)
        number = tf.placeholder(tf.int64, [])
        element = tf.fill([2], tf.cast(number, tf.float32))
        put = area.put(number, [element, element])
        key, (x, y) = area.get()
        made = [(tf.reshape(tf.cast(make(x), tf.float32), [-1]), make) for make in PARTS.values()]
        for number_, (read, _) in enumerate(made):
            sess.run(put, {number: number_})
            got_key, got = sess.run([key, tf.reduce_mean(read - y)], {x: [FED] * 2})
            assert (got_key, got) == (number_, FED - number_)
        assert sess.run(area.size()) == 0
