"""Compiled runs give what `tf.Session.run` gives: values, types, errors, their texts and their ops."""

from __future__ import annotations

import collections
import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from staging_tf1 import _tf
from staging_tf1._tf import run_parsed
from staging_tf1.feed import compiled_runs
from staging_tf1.feed.compiled_runs import compile_runs


class Pair(NamedTuple):
    first: Any
    second: Any


class Attributes:
    """As a class of attrs, without that library."""

    __attrs_attrs__ = (type("Attribute", (), {"name": "x"}), type("Attribute", (), {"name": "y"}))

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class Model:
    """A graph with something of every kind."""

    def __init__(self) -> None:
        self.x = tf.placeholder(tf.float32, [None, 2], name="x")
        self.flag = tf.placeholder_with_default(False, [], name="flag")
        self.number = tf.placeholder(tf.int32, [], name="number")
        self.byte = tf.placeholder(tf.uint8, [], name="byte")
        self.text = tf.placeholder(tf.string, [None], name="text")
        self.sparse_in = tf.sparse_placeholder(tf.float32, name="sparse_in")
        self.half = tf.placeholder(tf.bfloat16, [2], name="half")
        self.constant = tf.constant([1.0, 2.0], name="constant")
        self.names = tf.constant(["a", "b"], name="names")
        self.scalar = tf.constant(b"one", name="scalar")
        self.variable = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
        self.resource = tf.get_variable("r", initializer=[3.0, 4.0], use_resource=True)
        self.double = tf.identity(2.0 * self.x, name="double")
        self.chosen = tf.where(self.flag, self.constant, -self.constant, name="chosen")
        self.square = tf.square(self.number, name="square")
        self.sparse = tf.SparseTensor([[0, 1]], [5.0], [2, 2])
        self.slices = tf.IndexedSlices(self.constant, tf.constant([0, 1]))
        self.shaped_slices = tf.IndexedSlices(self.constant, tf.constant([0, 1]), tf.constant([2]))
        self.ragged = tf2.RaggedTensor.from_row_splits([1, 2, 3], [0, 1, 3])
        self.add = tf.assign_add(self.resource, [1.0, 1.0])
        self.group = tf.group(self.add, name="group")
        self.nothing = tf.no_op(name="nothing")
        self.empty = tf.constant([], name="empty")
        self.empty.graph.prevent_feeding(self.empty)
        self.checked = tf.debugging.assert_less(self.number, 10, message="the number is too large")
        with tf.control_dependencies([self.checked]):
            self.safe = tf.identity(self.number, name="safe")
        self.product = tf.matmul(self.x, tf.ones([2, 3]), name="product")
        self.reshaped = tf.reshape(self.x, [2], name="reshaped")
        self.python = tf.py_func(_refuse_seven, [self.number], tf.int32, name="python")
        self.queue = tf.FIFOQueue(1, tf.float32, [], name="queue")
        self.closed, self.taken = self.queue.close(), self.queue.dequeue()
        self.unset = tf.get_variable("unset", initializer=0.0, use_resource=False)
        self.handle = tf.get_session_handle(self.constant)


def _refuse_seven(number: Any) -> Any:
    if number == 7:
        raise ValueError("seven")
    return number


def of_another_graph() -> Any:
    with tf.Graph().as_default():
        return tf.placeholder(tf.int32, [], name="other")


ROWS = [[1.0, 2.0], [3.0, 4.0]]
# What is fetched and what is fed, or a function that makes both anew for each run.
FETCHES: dict[str, Callable[[Model], Any]] = {
    "tensor": lambda m: m.constant,
    "op": lambda m: m.nothing,
    "group": lambda m: m.group,
    "name of a tensor": lambda m: "constant:0",
    "name of an op": lambda m: "nothing",
    "variable": lambda m: m.variable,
    "resource variable": lambda m: m.resource,
    "string": lambda m: m.names,
    "scalar string": lambda m: m.scalar,
    "no elements": lambda m: m.empty,
    "sparse": lambda m: m.sparse,
    "slices": lambda m: m.slices,
    "slices with a shape": lambda m: m.shaped_slices,
    "ragged": lambda m: m.ragged,
    "list": lambda m: [m.constant, m.nothing, m.names],
    "tuple": lambda m: (m.constant, m.nothing),
    "tuple in a list": lambda m: [(m.constant,), [m.constant]],
    "namedtuple": lambda m: Pair(m.constant, [m.nothing, m.sparse]),
    "dict": lambda m: {"b": m.constant, "a": m.nothing, 3: {"c": m.variable}},
    "ordered dict": lambda m: collections.OrderedDict(b=m.constant, a=m.names),
    "default dict": lambda m: collections.defaultdict(list, a=m.constant),
    "attrs": lambda m: Attributes(m.constant, m.names),
    "twice": lambda m: [m.constant, m.constant, "constant:0"],
    "empty list": lambda m: [],
    "empty dict": lambda m: {},
    "list of an empty list": lambda m: [[], m.constant],
    "all at once": lambda m: {"x": [m.constant, Pair(m.sparse, (m.nothing, m.ragged))], "y": m.resource},
    "none": lambda m: None,
    "number": lambda m: 3,
    "none in a list": lambda m: [m.constant, None],
    "unknown name": lambda m: "nobody:0",
    "array": lambda m: np.zeros(2),
    "of another graph": lambda m: of_another_graph(),
    "uninitialized": lambda m: m.unset,
    "closed queue": lambda m: m.taken,
    "unfed placeholder": lambda m: m.double,
}
FEEDS: dict[str, Callable[[Model], tuple[Any, Any]]] = {
    "list": lambda m: (m.double, {m.x: ROWS}),
    "array": lambda m: ([m.double, m.nothing], {m.x: np.array(ROWS, np.float32)}),
    "array of float64": lambda m: (m.double, {m.x: np.array(ROWS)}),
    "array of integers": lambda m: (m.double, {m.x: np.array(ROWS, np.int16)}),
    "big-endian array": lambda m: (m.double, {m.x: np.array(ROWS, ">f4")}),
    "array with strides": lambda m: (m.double, {m.x: np.array(ROWS, np.float32).T[::-1]}),
    "no rows": lambda m: (m.double, {m.x: np.zeros([0, 2])}),
    "masked array": lambda m: (m.double, {m.x: np.ma.masked_equal(np.array(ROWS), 2.0)}),
    "True": lambda m: (m.chosen, {m.flag: True}),
    "numpy's True": lambda m: (m.chosen, {m.flag: np.True_}),
    "default of a placeholder": lambda m: (m.chosen, {}),
    "None for feeds": lambda m: (m.chosen, None),
    "Python integer": lambda m: (m.square, {m.number: 3}),
    "numpy integer": lambda m: (m.square, {m.number: np.int64(3)}),
    "too large integer": lambda m: (m.byte + 1, {m.byte: 256}),
    "too large numpy integer": lambda m: (m.byte + 1, {m.byte: np.int64(256)}),
    "fraction for an integer": lambda m: (m.square, {m.number: 2.5}),
    "strings": lambda m: (tf.strings.length(m.text), {m.text: ["a", "bc"]}),
    "bytes": lambda m: (m.text + "!", {m.text: np.array([b"a", b"bc"])}),
    "numbers for strings": lambda m: (m.text + "!", {m.text: [1, 2]}),
    "bfloat16": lambda m: (m.half + 1, {m.half: [1.0, 2.0]}),
    "sparse": lambda m: (m.sparse_in, {m.sparse_in: tf.SparseTensorValue([[0, 0]], [1.0], [1, 2])}),
    "sparse, summed": lambda m: (tf.sparse.reduce_sum(m.sparse_in), {m.sparse_in: ([[0, 0]], [1.0], [1, 2])}),
    "tuple as a key": lambda m: ([m.double, m.square], {(m.x, m.number): (ROWS, 2)}),
    "name as a key": lambda m: (m.double, {"x:0": ROWS}),
    "inner tensor": lambda m: (m.double + 1.0, {m.double: ROWS}),
    "variable": lambda m: (m.resource + 1.0, {m.resource: [0.0, 0.0]}),
    "fed and fetched": lambda m: ([m.x, m.double], {m.x: ROWS}),
    "only fed and fetched": lambda m: (m.x, {m.x: ROWS}),
    "not needed": lambda m: (m.constant, {m.x: ROWS}),
    "wrong shape": lambda m: (m.double, {m.x: [1.0, 2.0]}),
    "wrong type": lambda m: (m.double, {m.x: "text"}),
    "None": lambda m: (m.double, {m.x: None}),
    "tensor": lambda m: (m.double, {m.x: m.constant}),
    "op as a key": lambda m: (m.double, {m.nothing: 1}),
    "number as a key": lambda m: (m.double, {1: 1}),
    "tensor of another graph": lambda m: (m.double, {of_another_graph(): 1}),
    "not feedable": lambda m: (m.constant, {m.empty: []}),
    "failing assertion": lambda m: (m.safe, {m.number: 11}),
    "failing py_func": lambda m: (m.python, {m.number: 7}),
    "failing product": lambda m: (m.reshaped, {m.x: ROWS}),
}


@pytest.fixture(autouse=True)
def compiled_early(monkeypatch: pytest.MonkeyPatch) -> None:
    # The third run is a callable.
    monkeypatch.setattr(compiled_runs, "_RUNS_BEFORE", 1)


@pytest.fixture
def model() -> Iterator[Model]:
    with tf.Graph().as_default():
        yield Model()


@pytest.fixture(scope="module")
def made_once() -> Model:
    with tf.Graph().as_default():
        return Model()


@pytest.fixture
def shared(made_once: Model) -> Iterator[Model]:
    """A model that others use as well, in sessions of their own."""
    with made_once.x.graph.as_default():
        yield made_once


def outcome(session: Any, fetches: Any, feeds: Any) -> Any:
    """What a run returns, or its error, in a form that can be compared."""
    try:
        return described(session.run(fetches, feeds))
    except Exception as error:
        node = getattr(error, "node_def", None)
        op = getattr(error, "op", None)
        # Addresses of objects, and the numbers of queues, which the process counts.
        text = re.sub(r"0x[0-9a-f]+|'_\d+_queue'", "", str(error))
        return type(error), text, getattr(error, "error_code", None), str(node), op and (op.name, op.traceback)


def described(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, np.generic):
        return type(value), value.item() if value.dtype.kind != "V" else float(value)
    if isinstance(value, dict):
        return type(value), [(key, described(each)) for key, each in value.items()]
    if isinstance(value, Attributes):
        return type(value), described(value.x), described(value.y)
    if isinstance(value, (list, tuple)) or hasattr(value, "_fields"):
        return type(value), [described(each) for each in value]
    if isinstance(value, tf2.compat.v1.ragged.RaggedTensorValue):
        return type(value), value.to_list()
    return type(value), value


def sessions(model: Model) -> tuple[Any, Any]:
    """A session of TensorFlow and one whose runs are compiled, in the same state."""
    pair = tf.Session(), tf.Session()
    for session in pair:
        session.run([model.variable.initializer, model.resource.initializer, model.closed])
    compile_runs(pair[1])
    return pair


@pytest.mark.parametrize("name", FETCHES)
def test_fetches(shared: Model, name: str) -> None:
    plain, compiled = sessions(shared)
    make = FETCHES[name]
    fetches = make(shared)
    with plain, compiled:
        for _ in range(5):
            assert outcome(compiled, fetches, None) == outcome(plain, fetches, None)
        # Equal fetches in containers of their own.
        assert outcome(compiled, make(shared), None) == outcome(plain, make(shared), None)


@pytest.mark.parametrize("name", FEEDS)
def test_feeds(shared: Model, name: str) -> None:
    plain, compiled = sessions(shared)
    fetches, feeds = FEEDS[name](shared)
    good = {shared.x: ROWS[:1], shared.number: 1, shared.text: ["a"], shared.half: [0, 0], shared.byte: 0}
    good[shared.sparse_in] = ([[0, 0]], [1.0], [1, 2])
    with plain, compiled:
        # The fetches are known by then.
        for session in (plain, compiled):
            session.run(fetches, good)
        for _ in range(3):
            assert outcome(compiled, fetches, feeds) == outcome(plain, fetches, feeds)
        assert outcome(compiled, fetches, good) == outcome(plain, fetches, good)


def test_most_kinds_are_compiled(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    monkeypatch.setattr(compiled_runs, "run_parsed", lambda *a: parsed.append(1) or run_parsed(*a))
    _, session = sessions(model)
    with session:
        fetches = {"caller": [model.double, Pair(model.nothing, model.sparse)], "hook": (model.resource, "constant:0")}
        for runs, parsed_runs in [(2, 1), (3, 1)]:
            for rows in [ROWS, ROWS[:1], np.ones([3, 2], np.float32)][:runs]:
                session.run(fetches, {model.x: rows, model.flag: True}, tf.RunOptions(), tf.RunMetadata())
            assert len(parsed) == parsed_runs, "TensorFlow makes the first run, a callable the third"


def test_only_runs_that_are_often_repeated_become_callables(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_runs, "_RUNS_BEFORE", 5)
    made: list[int] = []
    monkeypatch.setattr(compiled_runs, "CompiledRun", lambda *a: made.append(1) or _tf.CompiledRun(*a))
    _, session = sessions(model)
    with session:
        # The first run makes the fetches known.
        for count in [0] * 6 + [1] * 3:
            session.run(model.double, {model.x: ROWS})
            assert len(made) == count
        for _ in range(3):
            session.run(model.double, {model.double: ROWS})


def test_large_constants_are_not_held_twice(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(compiled_runs, "CompiledRun", lambda *a: made.append(1) or _tf.CompiledRun(*a))
    _, session = sessions(model)
    with session:
        for mib, compiled in [(8, 1), (40, 0)]:
            total = tf.reduce_sum(tf.constant(np.ones(mib << 20, np.int8)))
            made.clear()
            for _ in range(4):
                session.run(total)
            assert len(made) == compiled


def test_callables_are_freed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    release = _tf._c_api.TF_SessionReleaseCallable
    monkeypatch.setattr(_tf._c_api, "TF_SessionReleaseCallable", lambda *a: freed.append(1) or release(*a))
    monkeypatch.setattr(compiled_runs, "_MOST", 10)
    _, session = sessions(model)
    with session:
        for number in range(25):
            more = model.constant + float(number)
            for _ in range(4):
                assert session.run(more).tolist() == [1.0 + number, 2.0 + number]
        assert len(freed) == 20
    assert len(freed) == 20, "the session frees the others when it is closed"


def test_options_and_metadata_reach_the_run(model: Model) -> None:
    _, session = sessions(model)
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    with session:
        for _ in range(3):
            metadata = tf.RunMetadata()
            session.run(model.constant, options=options, run_metadata=metadata)
            assert metadata.step_stats.dev_stats
        queue = tf.FIFOQueue(1, tf.float32, [])
        put, take = queue.enqueue(1.0), queue.dequeue()
        session.run(put)
        session.run(take)
        for _ in range(2):
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(take, options=tf.RunOptions(timeout_in_ms=50))


def test_containers_that_change(model: Model) -> None:
    _, session = sessions(model)
    fetches: Any = {"a": model.constant}
    with session:
        session.run(fetches)
        equal = {"a": model.constant}
        # TensorFlow's handler of the first run refers to the keys of that dict.
        del fetches["a"]
        fetches["z"] = model.names
        assert list(session.run(equal)) == ["a"] and list(session.run(fetches)) == ["z"]
        pair = [model.constant, model.names]
        session.run(pair)
        pair.reverse()
        assert session.run(pair)[0].tolist() == [b"a", b"b"]


def test_fed_array_is_read_in_each_run(model: Model) -> None:
    _, session = sessions(model)
    rows = np.zeros([1, 2], np.float32)
    with session:
        for number in range(4):
            rows[...] = number
            assert session.run(model.double, {model.x: rows}).tolist() == [[2.0 * number] * 2]


def test_shape_that_is_narrowed_later(model: Model) -> None:
    _, session = sessions(model)
    with session:
        for _ in range(2):
            session.run(model.double, {model.x: ROWS})
        model.x.set_shape([1, 2])
        with pytest.raises(ValueError, match="Cannot feed value of shape"):
            session.run(model.double, {model.x: ROWS})


def test_session_handles(model: Model) -> None:
    _, session = sessions(model)
    with session:
        holder, tensor = tf.get_session_tensor(session.run(model.handle).handle, tf.float32)
        for _ in range(3):
            handle = session.run(model.handle)
            assert handle.eval().tolist() == [1.0, 2.0]
            assert session.run(tensor, {holder: handle.handle}).tolist() == [1.0, 2.0]


def test_functions_draw_on(model: Model) -> None:
    @tf2.function(autograph=False)
    def noise() -> Any:
        return tf.random.uniform([3], seed=7)

    drawn, alone = noise(), tf.random.uniform([3], seed=3)
    plain, compiled = sessions(model)
    with plain, compiled:
        for _ in range(4):
            assert described(compiled.run([drawn, alone])) == described(plain.run([drawn, alone]))


def test_closed_session(model: Model) -> None:
    plain, compiled = sessions(model)
    for session in (plain, compiled):
        session.run(model.constant)
        session.close()
    assert outcome(compiled, model.constant, None) == outcome(plain, model.constant, None)
    assert "closed Session" in str(outcome(compiled, model.constant, None))


def test_class_that_runs_otherwise(model: Model) -> None:
    class Counted(tf.Session):
        runs = 0

        def _do_run(self, *arguments: Any) -> Any:
            self.runs += 1
            return super()._do_run(*arguments)

    session = Counted()
    compile_runs(session)
    with session:
        for _ in range(4):
            session.run(model.constant)
    assert session.runs == 4


def test_threads_at_once(model: Model) -> None:
    _, session = sessions(model)
    begin, wrong = threading.Barrier(8), []

    def work(number: int) -> None:
        begin.wait(60)
        for step in range(50):
            rows = [[number, step]]
            if session.run({"x": model.double}, {model.x: rows})["x"].tolist() != [[2 * number, 2 * step]]:
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    with session:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_new_fetches_in_each_run_are_not_kept(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_runs, "_MOST", 10)
    _, session = sessions(model)
    with session:
        for number in range(35):
            session.run([model.constant] * (number + 1))
            session.run(model.constant, {tf.placeholder(tf.float32, []): 1.0})
    runs = vars(session)["_staging_tf1_compiled_runs"]
    assert len(runs.by_key) <= 10 and len(runs._fed) <= 10


def test_sessions_are_freed() -> None:
    with tf.Graph().as_default():
        constant = tf.constant(1)
        session = tf.Session()
        compile_runs(session)
        for _ in range(3):
            session.run([constant])
        session.close()
        freed = weakref.ref(session)
        del session
        gc.collect()
        assert freed() is None
