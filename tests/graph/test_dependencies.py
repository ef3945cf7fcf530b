"""What a run depends on, and where the data can end: found in the graph, and compared with what TensorFlow runs."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from slow import examples

import staging_tf1 as staging
from staging_tf1.feed.chain import ByFetches
from staging_tf1.feed.feeding import feeding_of
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.dependencies import ancestors, can_end, cut_before
from staging_tf1.graph.dependencies import ops_of_run as ops_by_name
from staging_tf1.lifecycle.steps import Steps
from staging_tf1.signals import InterruptWatcher


@pytest.fixture(autouse=True)
def control_flow() -> Iterator[None]:
    """Make `tf.while_loop` and `tf.cond` of functions, as TensorFlow 2 does."""
    enabled = tf.control_flow_v2_enabled()
    tf.enable_control_flow_v2()
    yield
    (tf.enable_control_flow_v2 if enabled else tf.disable_control_flow_v2)()


class Pair(NamedTuple):
    first: Any
    second: Any


class Two:
    """A class of attrs, as far as TensorFlow looks at it: attrs need not be installed."""

    __attrs_attrs__ = (SimpleNamespace(name="first"), SimpleNamespace(name="second"))

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


def in_a_module(fetches: Any) -> Any:
    """What a `tf.Module` keeps of a list or dict: an object that stands for it."""
    module = tf.Module()
    module.fetches = fetches
    assert type(module.fetches) not in (list, dict)
    return module.fetches


def ops_of_run(*run: Any, **kwargs: Any) -> set[str]:
    """The names of the ops of a run."""
    ops = ops_by_name(*run, **kwargs)
    assert all(op.name == name for name, op in ops.items())
    return set(ops)


def constants(*names: str) -> list[Any]:
    return [tf.constant(float(number), name=name) for number, name in enumerate(names)]


# The ops of a run.

NESTED: dict[str, Callable[[Any, Any], Any]] = {
    "nested lists and tuples": lambda a, b: [[a], ((b,), [])],
    "dict": lambda a, b: {"x": a, "y": {"z": b}},
    "dict with keys of several kinds": lambda a, b: {"x": a, 1: b},
    "dict with a key that has no order": lambda a, b: {a.ref(): [a, b]},
    "OrderedDict": lambda a, b: collections.OrderedDict({"x": a, 1: b}),
    "UserDict": lambda a, b: collections.UserDict({"x": a, 1: b}),
    "namedtuple": Pair,
    "attrs": lambda a, b: Two([a], {"x": b, 1: b}),
    "dict of a module": lambda a, b: in_a_module({"x": a, "y": [b]}),
    "operations": lambda a, b: [a.op, b.op],
    "names of tensors": lambda a, b: ["a:0", "b:0"],
    "names of operations": lambda a, b: Pair("a", "b"),
}


@pytest.mark.parametrize("form", NESTED)
def test_every_form_of_fetches_is_looked_into(graph: Any, form: str) -> None:
    a, b, _ = constants("a", "b", "c")
    assert ops_of_run(graph, NESTED[form](a, b), []) == {"a", "b"}
    assert ops_of_run(graph, [], []) == ops_of_run(graph, {"x": []}, []) == set()


def test_tensors_of_several_parts_need_all_of_them_and_a_variable_what_reads_it(graph: Any) -> None:
    indices, values, shape = tf.constant([[0]], tf.int64), tf.constant([1.0]), tf.constant([2], tf.int64)
    sparse = tf.SparseTensor(indices, values, shape)
    needed = {indices.op.name, values.op.name, shape.op.name}
    assert ops_of_run(graph, {"sparse": sparse}, []) == needed
    assert ops_of_run(graph, sparse, [sparse]) == set(), "fed as a whole"
    assert ops_of_run(graph, sparse, [sparse.values]) == needed - {values.op.name}
    variable = tf.get_variable("v", [], use_resource=True)
    assert {op.split("/")[-1] for op in ops_of_run(graph, variable, [])} == {"v", "ReadVariableOp"}


def test_a_fed_tensor_cuts_the_walk(graph: Any) -> None:
    (a,) = constants("a")
    b = tf.identity(a, name="b")
    parts = tf.split(tf.stack([b, b], name="both"), 2, name="parts")
    c = tf.identity(parts[0], name="c")
    needed = {"c", "parts", "parts/split_dim", "both"}
    assert needed == ops_of_run(graph, c, [b]) == ops_of_run(graph, c, ["b:0"]) == ops_of_run(graph, c, [], cut=[b])
    assert "parts" in ops_of_run(graph, parts, [parts[0]]), "the other output is still computed"
    with tf.control_dependencies([a]):
        d = tf.identity(b, name="d")
    assert ops_of_run(graph, d, [a, b]) == {"d", "a"}, "a control edge is not cut"
    assert ops_of_run(graph, d, [a, d]) == set(), "what is fetched is fed itself"


@pytest.mark.parametrize("of_functions", [True, False])
def test_a_loop_needs_what_its_body_uses(graph: Any, of_functions: bool) -> None:
    """The graph of a loop of TensorFlow 1 has a cycle."""
    if not of_functions:
        tf.disable_control_flow_v2()
    a, b = constants("a", "b")
    out = tf.while_loop(lambda i: i < 3.0, lambda i: i + b, [a])
    needed = [op.name for op in ancestors([out])]
    assert {"a", "b"} <= set(needed) and len(needed) == len(set(needed))
    assert "b" not in ops_of_run(graph, out, [b])


@st.composite
def graphs(draw: Any) -> list[tuple[list[int], list[int]]]:
    """For each op, whose outputs it takes and behind which ones it comes."""
    count = draw(st.integers(1, 8))
    earlier = [st.lists(st.integers(0, number - 1), max_size=3) if number else st.just([]) for number in range(count)]
    return [(draw(each), draw(each)) for each in earlier]


@settings(max_examples=examples(60))
@given(graphs(), st.data())
def test_the_ops_of_a_run_are_those_that_tensorflow_keeps(
    links: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    with tf.Graph().as_default() as graph:
        tensors: list[Any] = []
        for inputs, behind in links:
            with tf.control_dependencies([tensors[each] for each in behind]):
                name = f"op{len(tensors)}"
                taken = [tensors[each] for each in inputs]
                tensors.append(tf.add_n(taken, name=name) if taken else tf.constant(1.0, name=name))
        chosen = st.lists(st.sampled_from(tensors), max_size=3, unique_by=id)
        fed = data.draw(chosen)
        fetches = data.draw(st.lists(st.sampled_from([*tensors, *(each.op for each in tensors)]), min_size=1))
        assert ops_of_run(graph, fetches, fed) == _kept(fetches, fed)


def _kept(fetches: list[Any], fed: list[Any]) -> set[str]:
    """The ops that TensorFlow is left with, once it has dropped what `fetches` do not need."""
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    ran = tf.RunMetadata()
    with tf.Session(config=config) as sess:
        options = tf.RunOptions(output_partition_graphs=True)
        sess.run(fetches, dict.fromkeys(fed, 1.0), options=options, run_metadata=ran)
    names = {node.name for part in ran.partition_graphs for node in part.node}
    # Those that hand the feeds and fetches over begin with an underscore.
    return {name for name in names if not name.startswith("_")}


# The towers of a run.


def test_a_run_takes_from_the_towers_that_it_depends_on(graph: Any) -> None:
    source = staging.sources.ArraySource({"x": np.arange(8), "y": np.arange(8)}, batch_size=2)
    pair = staging.staged(source, devices=["/cpu:0"] * 2, name="two")
    single = staging.staged(source, name="one")
    (other,) = constants("other")
    with tf.control_dependencies([pair[1]["y"]]):
        behind = tf.identity(other)
    with tf.Session() as sess:
        steps = Steps(feeding_of(sess), pipelines_of(graph), InterruptWatcher(print))
        for fetches, fed, expected in [
            (other, None, set()),
            (pair[0]["x"], None, {"two/0"}),
            ({"a": pair[1]["x"], "b": single["y"].name}, None, {"two/1", "one"}),
            (behind.op, None, {"two/1"}),
            ([tf.reduce_sum(single["x"]), pair], None, {"two/0", "two/1", "one"}),
            ([single["x"], pair[0]["x"]], {single["x"]: [1, 2]}, {"two/0"}),
            ([single["x"], single["y"]], {single["x"]: [1, 2]}, {"one"}),
            (behind, {other: 1.0}, {"two/1"}),
        ]:
            taken = {sink.name for sink in steps.chain.plan(fetches, fed).sinks}
            assert taken == expected, f"{fetches} with {fed}"
        assert not steps.chain.plan("no such op", None).sinks


# The answers that are kept.


class Fetch:
    """An object that is no list, tuple, dict or string: it is known by its identity."""

    def __init__(self, number: int) -> None:
        self.number = number


class Several(list[Any]):
    """A list of a class of its own."""


def test_the_same_fetches_and_feeds_are_looked_up_once_and_others_anew(graph: Any) -> None:
    a, b = constants("a", "b")
    asked: list[Any] = []
    cache = ByFetches(lambda *run: asked.append(run) or run)  # type: ignore[func-returns-value]
    pair = Pair(a, b)
    fetches: list[Callable[[], Any]] = [
        *(lambda: a, lambda: b, lambda: [a], lambda: [[a]], lambda: [a, b], lambda: [b, a], lambda: [[a], b]),
        *(lambda: [a, [b]], lambda: [a, (b, [a])], lambda: {"x": a}, lambda: {"y": a}, lambda: {"x": b}, lambda: pair),
        *(lambda: "".join(["a", ":0"]), lambda: ["a:0"], lambda: {"x": a, "y": [b]}, lambda: Several([a])),
        # The second fetches b, too.
        *(lambda: {"b:0": a}, lambda: [("b:0", a)]),
    ]
    feeds: list[Any] = [None, {a: 1.0}, {b: 1.0}, {"b:0": 1.0}, {a: 1.0, b: 1.0}]
    for number, (make, fed) in enumerate([(make, fed) for make in fetches for fed in feeds], 1):
        assert cache.of(make(), fed) == (make(), [*(fed or {})])
        # What is fed matters, and not its value.
        cache.of(make(), dict.fromkeys(fed or {}, 2.0))
        assert len(asked) == number


# Each is made of one fetch, and gets a second one by the function beside it.
CHANGED: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    "list": (lambda a: [a], lambda fetches, b: fetches.append(b)),
    "dict": (lambda a: {"a": a}, lambda fetches, b: fetches.update(b=b)),
    "defaultdict": (lambda a: collections.defaultdict(list, a=[a]), lambda fetches, b: fetches["b"].append(b)),
    "UserDict": (lambda a: collections.UserDict(a=a), lambda fetches, b: fetches.update(b=b)),
    "subclass of list": (lambda a: Several([a]), lambda fetches, b: fetches.append(b)),
    "list in a namedtuple": (lambda a: Pair([a], []), lambda fetches, b: fetches.second.append(b)),
    "list in an OrderedDict": (lambda a: collections.OrderedDict(a=[a]), lambda fetches, b: fetches["a"].append(b)),
    "attrs": (lambda a: Two(a, []), lambda fetches, b: setattr(fetches, "second", b)),
    "dict of a module": (lambda a: in_a_module({"a": a}), lambda fetches, b: fetches.update(b=b)),
    "list of a module": (lambda a: in_a_module([a]), lambda fetches, b: fetches.append(b)),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_containers_that_have_changed_are_looked_up_anew(graph: Any, kind: str) -> None:
    make, change = CHANGED[kind]
    a, b = constants("a", "b")
    cache = ByFetches(lambda fetches, fed: ops_of_run(graph, fetches, fed))
    fetches = make(a)
    with tf.Session() as sess:
        sess.run(fetches)
        assert cache.of(fetches, None) == {"a"}
        change(fetches, b)
        sess.run(fetches)
        assert cache.of(fetches, None) == {"a", "b"}


SHORT_LIVED: dict[str, Callable[[Fetch, list[Any]], tuple[Any, Any]]] = {
    "fetch": lambda fetch, _: (fetch, None),
    "in a list": lambda fetch, _: ([fetch, [fetch]], None),
    "in a dict": lambda fetch, _: ({"x": fetch}, None),
    "in the same list": lambda fetch, same: (same.__setitem__(0, fetch) or same, None),  # type: ignore[func-returns-value]
    "feed": lambda fetch, _: ("x", {fetch: 1.0}),
}


@pytest.mark.parametrize("where", SHORT_LIVED)
def test_no_object_gets_the_answer_of_another_that_is_gone_and_few_are_kept(where: str) -> None:
    cache = ByFetches(lambda *run: {each.number for each in tf.nest.flatten(run) if isinstance(each, Fetch)})
    alive, lasting, same = weakref.WeakSet[Fetch](), Fetch(-1), [None]
    for number in range(2500):
        fetch = Fetch(number)
        alive.add(fetch)
        assert cache.of(*SHORT_LIVED[where](fetch, same)) == {number}
        assert cache.of(lasting, None) == {-1}
    assert len(alive) <= 1001


# Where the data can end.


def ended_queue() -> Any:
    queue = tf.FIFOQueue(3, tf.int32, [[]])
    tf.add_to_collection("end", queue.close())
    return queue


def ended_reader() -> tuple[Any, Any]:
    names = tf.FIFOQueue(1, tf.string, [[]])
    tf.add_to_collection("end", names.close())
    return tf.TFRecordReader(), names


def ended_iterator() -> Any:
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(0))
    tf.add_to_collection("end", iterator.initializer)
    return iterator


def old_dequeue() -> Any:
    handle = tf.raw_ops.FIFOQueue(component_types=[tf.int32], shapes=[[]])
    tf.add_to_collection("end", tf.raw_ops.QueueClose(handle=handle))
    return tf.raw_ops.QueueDequeue(handle=handle, component_types=[tf.int32])[0]


def stop(*_: Any) -> Any:
    raise StopIteration


def while_once(body: Callable[[Any], Any], first: Any = 0) -> Any:
    """A loop that runs `body` once."""
    return tf.while_loop(lambda i, _: i < 1, lambda i, x: (i + 1, body(x)), [0, first])[1]


def if_true(then: Callable[[], Any]) -> Any:
    return tf.cond(tf.placeholder_with_default(True, []), then, lambda: tf.constant(1))


def called(function: Callable[..., Any], *args: Any) -> Any:
    return tf.function(function, autograph=False)(*args)


def two_deep() -> Any:
    queue = ended_queue()
    return while_once(lambda x: if_true(lambda: called(lambda: queue.dequeue() + x)))


def chain_of_functions() -> Any:
    """A chain of functions each of which calls the one before it twice."""
    function: Callable[[Any], Any] = lambda x: x + 1  # noqa: E731
    for _ in range(5):
        function = tf.function(lambda x, inner=function: tf.cond(x > 0, lambda: inner(x), lambda: inner(-x)))
    return function(tf.constant(1))


ENDING: dict[str, Callable[[], Any]] = {
    "dequeue": lambda: ended_queue().dequeue(),
    "dequeue_many": lambda: ended_queue().dequeue_many(2),
    "dequeue_up_to": lambda: ended_queue().dequeue_up_to(2),
    "dequeue of an old graph": old_dequeue,
    "read": lambda: (lambda reader, names: reader.read(names)[1])(*ended_reader()),
    "read_up_to": lambda: (lambda reader, names: reader.read_up_to(names, 2)[1])(*ended_reader()),
    "get_next": lambda: ended_iterator().get_next(),
    "py_func": lambda: tf.py_func(stop, [], tf.int32),
    "py_func of a constant": lambda: tf.py_func(stop, [tf.constant(1)], tf.int32),
    "py_func without state": lambda: tf.py_func(stop, [], tf.int32, stateful=False),
    "py_function": lambda: tf.py_function(stop, [], tf.int32),
    # In functions.
    "in cond": lambda: if_true(ended_queue().dequeue),
    "in while_loop": lambda: (lambda queue: while_once(lambda _: queue.dequeue()))(ended_queue()),
    "in condition of a while_loop": lambda: (
        lambda queue: tf.while_loop(lambda i: queue.dequeue() < i, lambda i: i + 1, [0])
    )(ended_queue()),
    "in switch_case": lambda: tf.switch_case(
        tf.placeholder_with_default(1, []), [lambda: tf.constant(1), ended_queue().dequeue]
    ),
    "in function": lambda: (lambda iterator: called(iterator.get_next))(ended_iterator()),
    "in functions in functions": two_deep,
    "in map_fn": lambda: (lambda queue: tf.map_fn(lambda x: x + queue.dequeue(), tf.constant([1, 2])))(ended_queue()),
    "in py_func": lambda: if_true(lambda: tf.py_func(stop, [], tf.int32)),
    "in py_func without state": lambda: if_true(lambda: tf.py_func(stop, [], tf.int32, stateful=False)),
    "in py_func of a constant": lambda: if_true(lambda: tf.py_func(stop, [tf.constant(1)], tf.int32)),
    "in py_func of a constant outside": lambda: (
        lambda value: if_true(lambda: tf.ensure_shape(tf.py_func(stop, [value], tf.int32), []))
    )(tf.constant(1)),
}
NOT_ENDING: dict[str, Callable[[], Any]] = {
    "constant": lambda: tf.constant(1),
    "size": lambda: ended_queue().size(),
    "is_closed": lambda: ended_queue().is_closed(),
    "optional": lambda: ended_iterator().get_next_as_optional().has_value(),
    "py_func of what the graph computes": lambda: tf.py_func(lambda x: x, [tf.constant(1) + 1], tf.int32),
    "py_function of what the graph computes": lambda: tf.py_function(lambda x: x, [tf.constant(1) + 1], tf.int32),
    # In functions.
    "nothing in cond": lambda: if_true(lambda: tf.constant(2)),
    "nothing in while_loop": lambda: while_once(lambda x: x + 1),
    "nothing in size": lambda: (lambda queue: called(queue.size))(ended_queue()),
    "nothing in py_func of what a function computes": lambda: (
        lambda x: if_true(lambda: tf.ensure_shape(tf.py_func(lambda y: y, [x + 1], tf.int32), []))
    )(tf.constant(1)),
    "nothing in py_func of what the graph computes": lambda: (
        lambda x: if_true(lambda: tf.ensure_shape(tf.py_func(lambda y: y, [x], tf.int32), []))
    )(tf.constant(1) + 1),
    "nothing in function of a dataset": lambda: tf.data.experimental.cardinality(
        tf.data.Dataset.range(2).map(lambda _: tf.py_func(stop, [], tf.int32))
    ),
    "nothing in many functions": chain_of_functions,
}


@pytest.mark.parametrize("made", [*ENDING, *NOT_ENDING])
def test_where_the_data_can_end(graph: Any, made: str) -> None:
    fetched = (ENDING | NOT_ENDING)[made]()
    with tf.Session() as sess:
        sess.run(tf.get_collection("end"))
        with pytest.raises(tf.errors.OutOfRangeError) if made in ENDING else nullcontext():
            sess.run(fetched)
    assert len([op for op in ancestors([fetched]) if can_end(op)]) == (made in ENDING)


def test_what_a_py_func_is_given_may_come_from_outside(graph: Any) -> None:
    for given_value in (tf.placeholder(tf.int32), tf.placeholder_with_default(1, [])):
        assert can_end(tf.py_func(stop, [given_value], tf.int32).op)
        assert not can_end(tf.py_func(stop, [given_value, tf.identity(given_value)], tf.int32).op)


def at_the_dequeue() -> tuple[list[Any], list[Any]]:
    x = ended_queue().dequeue()
    return [x + 1, tf.identity(x)], [x]


def two_queues() -> tuple[list[Any], list[Any]]:
    x, y = ended_queue().dequeue(), ended_queue().dequeue()
    return [x + y], [x, y]


def every_output() -> tuple[list[Any], list[Any]]:
    queue = tf.FIFOQueue(3, [tf.int32, tf.int32], [[], []])
    x, y = queue.dequeue()
    return [x + 1], [x, y]


def behind_a_control_edge() -> tuple[list[Any], list[Any]]:
    x = ended_queue().dequeue()
    with tf.control_dependencies([x]):
        value = tf.constant(1) + x
    other = tf.constant(2)
    return [value, other], [value]


def of_a_dataset_of_datasets() -> tuple[list[Any], list[Any]]:
    nested = tf.data.make_one_shot_iterator(tf.data.Dataset.range(4).window(2)).get_next()
    value = tf.data.experimental.cardinality(nested)
    return [value], [value]


def behind_a_branch() -> tuple[list[Any], list[Any]]:
    x = if_true(ended_queue().dequeue)
    return [x], [x]


def not_to_be_fed() -> tuple[list[Any], list[Any]]:
    x = ended_queue().dequeue()
    tf.get_default_graph().prevent_feeding(x)
    value = x + 1
    return [value], [value]


CUTS: dict[str, Callable[[], tuple[list[Any], list[Any]]]] = {
    "at the dequeue": at_the_dequeue,
    "at both of two queues": two_queues,
    "at every output of the op": every_output,
    "behind a control edge": behind_a_control_edge,
    "behind what is a variant": of_a_dataset_of_datasets,
    "behind what must not be fed": not_to_be_fed,
    "behind a branch": behind_a_branch,
    "nowhere": lambda: ([tf.constant(1) + 1], []),
}


@pytest.mark.parametrize("place", CUTS)
def test_a_put_is_cut_where_its_data_can_end(graph: Any, place: str) -> None:
    values, expected = CUTS[place]()
    area = staging.StagingArea([value.dtype for value in values], [value.shape for value in values])
    put = area.put(values)
    cut = cut_before(put, values)
    assert sorted(tensor.name for tensor in cut) == sorted(tensor.name for tensor in expected)
    behind = ancestors([put], {tensor.name for tensor in cut})
    assert not any(can_end(op) for op in behind), "with these fed, the put cannot meet the end"


def test_functions_that_are_built_later_or_are_being_built_are_found(graph: Any) -> None:
    queue, seen = ended_queue(), []
    first = if_true(lambda: tf.constant(2))
    assert not any(can_end(op) for op in ancestors([first]))

    def build() -> Any:
        made = if_true(queue.dequeue)
        seen.extend(op.type for op in ancestors([made]) if can_end(op))
        return made

    called(build)
    assert seen == ["If"]
    assert any(can_end(op) for op in ancestors([if_true(queue.dequeue)]))
