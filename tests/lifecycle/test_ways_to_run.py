"""Whatever way a program runs a session, the step is seen: its end, the error of its source, its failure, its stall."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from slow import some_of
from tensorflow.core.protobuf import config_pb2

import staging_tf1 as staging
from staging_tf1.errors import StallError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.state import feeding_in
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT, AT = 6, 3


class BadFileError(Exception):
    """Raised by the source."""


class Model:
    """Notes each batch in the graph, so that each way to run it is the same."""

    def __init__(self, happens: str) -> None:
        self.seen: list[int] = []
        self._fails_at = AT if happens == "a step fails" else -1

        def transform(batch: Any) -> Any:
            if happens == "the source fails" and batch[0] == AT:
                raise BadFileError
            return batch

        x = staging.staged(ArraySource(np.arange(COUNT), batch_size=1, epochs=1, transform=transform), name="x")
        self.fed = tf.placeholder_with_default(tf.constant(1, tf.int64), [])
        self.taken = tf.py_func(self._note, [x], tf.int64)
        self.taken.set_shape([])
        self.op = self.taken.op
        self.then = self.taken * self.fed
        self.double = 2 * self.fed

    def _note(self, batch: Any) -> Any:
        if batch[0] == self._fails_at:
            raise ValueError("on purpose")
        self.seen.append(int(batch[0]))
        return batch[0]


def in_parts(sess: Any, model: Model) -> Callable[[], Any]:
    set_up, part = sess.partial_run_setup, sess.partial_run

    def step() -> Any:
        handle = set_up([model.taken, model.then], [model.fed])
        first = part(handle, model.taken)
        assert part(handle, model.then, {model.fed: 2}) == 2 * first

    return step


def bound_run(sess: Any, model: Model) -> Callable[[], Any]:
    run = sess.run
    return lambda: run(model.taken)


def bound_make_callable(sess: Any, model: Model) -> Callable[[], Any]:
    make_callable = sess.make_callable
    return lambda: make_callable(model.taken)()


def with_feeds(sess: Any, model: Model) -> Callable[[], Any]:
    call = sess.make_callable(model.then, [model.fed])
    return lambda: call(2)


def with_options(sess: Any, model: Model) -> Callable[[], Any]:
    call = sess.make_callable([model.taken], accept_options=True)
    return lambda: call(options=tf.RunOptions(), run_metadata=tf.RunMetadata())


def of_options(sess: Any, model: Model) -> Callable[[], Any]:
    """A callable as Keras makes them."""
    options = config_pb2.CallableOptions(feed=[model.fed.name], fetch=[model.then.name], target=[model.op.name])
    call = sess._make_callable_from_options(options)
    return lambda: call(np.int64(2))


def that_connects(sess: Any, model: Model) -> Callable[[], Any]:
    """The same, which feeds a tensor of the graph."""
    options = config_pb2.CallableOptions(fetch=[model.double.name])
    options.tensor_connection.add(from_tensor=model.taken.name, to_tensor=model.fed.name)
    return lambda: sess._make_callable_from_options(options)(run_metadata=tf.RunMetadata())


# Each is called with the session before anything has started in it.
WAYS: dict[str, Callable[[Any, Model], Callable[[], Any]]] = {
    "run": lambda sess, model: lambda: sess.run(model.taken),
    "a bound run": bound_run,
    "make_callable": lambda sess, model: lambda: sess.make_callable(model.taken)(),
    "a bound make_callable": bound_make_callable,
    "a callable": lambda sess, model: sess.make_callable(model.taken),
    "a callable of an op": lambda sess, model: sess.make_callable(model.op),
    "a callable with options": with_options,
    "a callable with feeds": with_feeds,
    "a callable of options": of_options,
    "a callable that connects": that_connects,
    "eval": lambda sess, model: lambda: model.taken.eval(session=sess),
    "op.run": lambda sess, model: lambda: model.op.run(session=sess),
    "partial_run": in_parts,
}


@contextmanager
def plain(way: Any, model: Model, session: Any = tf.Session) -> Iterator[tuple[Any, Any]]:
    """A session of TensorFlow's, with a step that was prepared before the start; raises what its coordinator does."""
    sess = session()
    try:
        step = way(sess, model)
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        try:
            yield sess, step
        finally:
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=20)
    finally:
        sess.close()


def interactive(way: Any, model: Model) -> Any:
    return plain(way, model, tf.InteractiveSession)


@contextmanager
def monitored(way: Any, model: Model, make: Any = None) -> Iterator[tuple[Any, Any]]:
    """A MonitoredSession with the hook. The scaffold gets the session before anything starts in it."""
    got: list[Any] = []

    def init(scaffold: Any, sess: Any) -> None:
        got[:] = sess, way(sess, model)

    scaffold = tf.train.Scaffold(init_fn=init)
    if make is None:
        sess = tf.train.MonitoredTrainingSession(scaffold=scaffold, hooks=[staging.StagingHook()])
    else:
        sess = make(scaffold=scaffold)
    with sess:
        yield got[0], got[1]


def helper(way: Any, model: Model) -> Any:
    return monitored(way, model, staging.StagingSession)


SESSIONS = {"Session": plain, "InteractiveSession": interactive, "hook": monitored, "StagingSession": helper}


HAPPENS = ["nothing", "the source fails", "a step fails"]
CASES = [
    (kind, way, happens)
    for kind, way, happens in itertools.product(SESSIONS, WAYS, HAPPENS)
    # Of an InteractiveSession, TensorFlow makes only one partial run; after a failed one it cancels the whole session.
    if way != "partial_run" or (kind != "InteractiveSession" and happens != "a step fails")
]


@pytest.mark.parametrize(("kind", "way", "happens"), some_of(CASES))
def test_each_way_to_run_is_seen(graph: Any, kind: str, way: str, happens: str) -> None:
    model = Model(happens)
    raised: list[type[BaseException]] = []
    try:
        with SESSIONS[kind](WAYS[way], model) as (sess, step):
            while not raised:
                try:
                    step()
                except Exception as error:
                    raised.append(type(error))
            if happens == "a step fails":
                assert [*feeding_in(sess).accounts.numbers.values()] == [[AT]], "the batch of the failed step is named"
                step()
    except BadFileError:
        raised.append(BadFileError)
    if happens == "nothing":
        assert (model.seen, raised) == ([*range(COUNT)], [tf.errors.OutOfRangeError])
    elif happens == "the source fails":
        assert model.seen == [*range(AT)]
        # The coordinator raises it again when it is joined, as TensorFlow's does.
        assert raised == [BadFileError] * 2
    else:
        assert issubclass(raised[0], tf.errors.OpError) and raised[1:] == []
        assert model.seen == [*range(AT), AT + 1]


@pytest.mark.parametrize("way", ["a bound run", "a callable", "partial_run"])
def test_a_stall_is_reported(graph: Any, way: str) -> None:
    go_on = threading.Event()

    def source() -> Iterator[Any]:
        yield np.array([0])
        go_on.wait(20)

    x = staging.staged(GeneratorSource(source, spec=tf.TensorSpec([1], tf.int64)), name="x")
    fed = tf.placeholder_with_default(1.0, [])

    class Fetched:
        taken, then, op = tf.reduce_sum(x), tf.cast(tf.reduce_sum(x), tf.float32) * fed, None

    model: Any = Fetched()
    model.fed = fed
    with tf.Session() as sess:
        run = WAYS[way](sess, model) if way != "partial_run" else None
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord, stall_secs=0.5, stall_raises=True)
        step = run or (lambda: sess.partial_run(sess.partial_run_setup([model.taken], [fed]), model.taken))
        try:
            assert step() == 0
            with pytest.raises(StallError, match="the source of 'x' .*test_ways_to_run.py"):
                step()
        finally:
            go_on.set()
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=20)


def of_lockstep(graph: Any) -> tuple[Any, str]:
    x = staging.staged(ArraySource(np.arange(6), batch_size=1), lockstep=True, name="x")
    return x, (
        "'x' is in lockstep, so each run that takes a batch also puts the next one. Fetch all of them in one run(), or "
        "use staged(lockstep=False)."
    )


def of_an_iterator(graph: Any) -> tuple[Any, str]:
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(4).batch(1))
    x = staging.staged(iterator.get_next(), name="x")
    return behind(iterator.initializer), (
        f"{pipeline_of(x)}: they initialize its iterator, and its threads begin anew after it. Run them in a run()."
    )


def of_a_position(graph: Any) -> tuple[Any, str]:
    x = staging.staged(ArraySource(np.arange(6), batch_size=1), name="x")
    return behind(tf.global_variables_initializer()), (
        f"{pipeline_of(x)}: they set its position, and its threads begin anew after it. Run them in a run()."
    )


def behind(op: Any) -> Any:
    with tf.control_dependencies([op]):
        return tf.constant(1)


def pipeline_of(x: Any) -> Any:
    return pipelines_of(x.graph)[0]


def of_an_area(graph: Any) -> tuple[Any, str]:
    batch = staging.CustomRunner(lambda: iter(np.split(np.arange(12), 6)), queue="fifo", name="q").get_inputs()
    area = staging.StagingArea.from_tensors(batch, capacity=2)
    with tf.control_dependencies([area.put(batch)]):
        fetched = tf.constant(1)
    return fetched, (
        f"{area} is filled from a queue of feed threads. At the end of the data its values are fed to the run. Fetch "
        f"all of them in one run()."
    )


@pytest.mark.parametrize("make", [of_lockstep, of_an_iterator, of_a_position, of_an_area])
def test_a_partial_run_that_cannot_be_one_is_refused(graph: Any, make: Any) -> None:
    fetched, reason = make(graph)
    with staging.StagingSession() as sess:

        def step(step_context: Any) -> None:
            with pytest.raises(RuntimeError) as caught:
                step_context.session.partial_run_setup([fetched], [])
            assert str(caught.value) == f"partial_run_setup() got fetches that only a whole run can do: {reason}"

        sess.run_step_fn(step)
        assert sess.stats()[0].batches == 0
        sess.run(fetched)


@pytest.mark.parametrize("start", [staging.start, tf.train.start_queue_runners])
@pytest.mark.parametrize("with_coord", [True, False])
def test_only_data_that_a_failure_cut_off_raise_it(graph: Any, with_coord: bool, start: Any) -> None:
    go_on = threading.Event()

    def fails() -> Iterator[Any]:
        yield np.array([0])
        go_on.wait(20)
        raise BadFileError

    spec = tf.TensorSpec([1], tf.int64)
    short = staging.staged(ArraySource(np.arange(2), batch_size=1, epochs=1), name="short")
    endless = staging.staged(ArraySource(np.arange(2), batch_size=1), name="endless")
    bad = staging.staged(GeneratorSource(fails, spec=spec), name="bad")
    with tf.Session() as sess:
        coord = tf.train.Coordinator() if with_coord else None
        threads = start(sess, coord)
        assert [int(sess.run(short)[0]) for _ in range(2)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(short)
        go_on.set()
        for _ in range(2):
            with pytest.raises(BadFileError) as caught:
                while True:
                    sess.run(bad)
            assert caught.value.__suppress_context__, "nothing of the step's own error is shown"
        with pytest.raises(tf.errors.OutOfRangeError, match="short"):
            sess.run(short)
        if coord is None:
            assert sess.run(endless).shape == (1,), "nobody has stopped it"
        else:
            with pytest.raises(BadFileError):
                while True:
                    sess.run(endless)
            with pytest.raises(BadFileError):
                coord.join(threads)


class Logged(tf.Session):  # type: ignore[misc]
    """A session of a program that has a `run` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Any] = []

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        self.runs.append(fetches)
        return super().run(fetches, feed_dict, options, run_metadata)


def test_a_session_with_a_run_of_its_own_is_seen(graph: Any) -> None:
    model = Model("the source fails")
    with pytest.raises(BadFileError), plain(WAYS["run"], model, Logged) as (sess, step):
        with pytest.raises(BadFileError):
            while True:
                step()
        assert sess.runs.count(model.taken) == AT + 1 and "run" not in vars(sess)


def test_a_debugger_around_the_session_is_seen(graph: Any, tmp_path: Any) -> None:
    from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

    model = Model("the source fails")

    def debugged() -> Any:
        return DumpingDebugWrapperSession(tf.Session(), str(tmp_path / "dumps"))

    with pytest.raises(BadFileError), plain(WAYS["run"], model, debugged) as (_, step), pytest.raises(BadFileError):
        while True:
            step()
    assert model.seen == [*range(AT)]


def test_a_patch_of_all_sessions_hides_no_step(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    run = tf.Session.run

    def profiled(self: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        runs.append(fetches)
        return run(self, fetches, *args, **kwargs)

    model = Model("the source fails")
    with pytest.raises(BadFileError), plain(WAYS["run"], model) as (_, step):
        monkeypatch.setattr(tf.Session, "run", profiled)
        step()
        monkeypatch.undo()
        with pytest.raises(BadFileError):
            while True:
                step()
    assert model.seen == [*range(AT)] and runs.count(model.taken) == 1


def test_a_session_without_a_pipeline_is_as_before(graph: Any) -> None:
    x = tf.placeholder(tf.float32, [], name="fed")
    with tf.Session() as sess:
        assert str(inspect.signature(sess.run)) == "(fetches, feed_dict=None, options=None, run_metadata=None)"
        assert str(inspect.signature(sess.make_callable)) == "(fetches, feed_list=None, accept_options=False)"
        assert str(inspect.signature(sess.partial_run_setup)) == "(fetches, feeds=None)"
        assert sess.run([x, {"y": x}], {x: 2}) == [2.0, {"y": 2.0}]
        assert sess.make_callable(x, [x])(3) == 3.0
        for wrong in (lambda: sess.run(None), lambda: sess.make_callable(None), lambda: sess.partial_run("no", None)):
            with pytest.raises(TypeError, match="Cannot be None"):
                wrong()
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value"):
            sess.make_callable(x)()
        assert not any("staging" in name for name in vars(sess))


@pytest.mark.parametrize("connects", [False, True])
def test_a_callable_of_options_puts_in_lockstep(graph: Any, connects: bool) -> None:
    x = staging.staged(ArraySource(np.arange(COUNT), batch_size=1, epochs=1), lockstep=True)
    factor = tf.placeholder(tf.int64, [1])
    product = x * factor
    options = config_pb2.CallableOptions(fetch=[product.name])
    if connects:
        options.tensor_connection.add(from_tensor=x.name, to_tensor=factor.name)
    else:
        options.feed.append(factor.name)
    got: list[int] = []

    class Hook(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            self.call = session._make_callable_from_options(options)

    hook = Hook()
    with staging.StagingSession(hooks=[hook]):
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                got.extend(hook.call(*([] if connects else [np.array([3])]))[0].tolist())
    assert got == [number * (number if connects else 3) for number in range(COUNT)]
