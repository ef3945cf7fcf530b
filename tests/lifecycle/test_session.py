"""The sequence of a session: what starts when, what ends a run, and that nothing is left behind."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import PIPELINES, Numbers, build, to_the_end
from running import feed_threads

import staging_tf1 as staging
from staging_tf1.errors import UnclosedWarning, UninitializedError
from staging_tf1.feed.chain import ByFetches
from staging_tf1.feed.feeding import Feeding
from staging_tf1.lifecycle import runtime
from staging_tf1.sources import ArraySource


def numbers(count: int | None = None, batch: int = 1) -> ArraySource:
    """0, 1, 2, ...; endless if no count is given."""
    return ArraySource(np.arange(count or 100), batch_size=batch, epochs=1 if count else None)


class UserError(Exception):
    """Raised by the user's own code in the tests below."""


class Recorder(tf.train.SessionRunHook):
    """Records what exists when MonitoredSession calls its hooks."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self) -> None:
        self.events.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.events.append("created")

    def end(self, session: Any) -> None:
        self.events.append("end")


def test_variables_have_values_before_a_thread_starts(graph: Any) -> None:
    start = tf.get_variable("start", initializer=40)
    x = staging.staged({"sum": start + 2})  # the feed thread reads the variable
    with staging.StagingSession() as sess:
        assert sess.run(x)["sum"] == 42


def test_the_order_of_the_hooks(graph: Any) -> None:
    x = staging.staged(numbers(3))
    recorder = Recorder()
    with staging.StagingSession(hooks=[recorder]) as sess:
        while not sess.should_stop():
            sess.run(x)
    assert recorder.events == ["begin", "created", "end"], "the end of the data is a normal end"
    with pytest.raises(UserError), staging.StagingSession(hooks=[recorder]) as sess:
        raise UserError
    assert recorder.events[3:] == ["begin", "created"], "as MonitoredSession: no end() after an error"


def test_the_end_of_the_data_is_out_of_range_and_ends_the_block(graph: Any) -> None:
    x = staging.staged(numbers(2))
    with staging.StagingSession() as sess:
        sess.run(x), sess.run(x)
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(x)
        sess.run(x)
    assert sess.should_stop() and feed_threads() == []


WAYS = ["run", "make_callable", "step_fn", "monitored"]


@pytest.mark.parametrize(("how", "lockstep"), [("plain", False), *((how, mode) for how in WAYS for mode in (0, 1))])
def test_every_way_to_step_sees_every_batch(graph: Any, how: str, lockstep: bool) -> None:
    x = staging.staged(numbers(5), lockstep=lockstep)
    got: list[int] = []
    if how == "plain":
        with tf.Session() as sess:
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            with coord.stop_on_exception():
                while not coord.should_stop():
                    got.append(int(sess.run(x)[0]))
            coord.join(threads, stop_grace_period_secs=60)
    elif how == "monitored":
        with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
            while not sess.should_stop():
                got.append(int(sess.run(x)[0]))
    else:
        with staging.StagingSession() as sess:
            steps = {
                "run": lambda: sess.run(x),
                "make_callable": sess.make_callable(x),
                "step_fn": lambda: sess.run_step_fn(lambda step_context: step_context.run_with_hooks(x)),
            }
            while not sess.should_stop():
                got.append(int(steps[how]()[0]))
    assert got == [0, 1, 2, 3, 4]
    assert feed_threads() == []


@pytest.mark.parametrize("how", ["run", "monitored", "make_callable"])
def test_what_a_step_takes_is_looked_up_once(graph: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    x = staging.staged(numbers())
    asked: list[Any] = []
    of = ByFetches.of

    def noted(self: ByFetches[Any], fetches: Any, fed: Any) -> Any:
        asked.append(fetches)
        return of(self, fetches, fed)

    if how == "monitored":
        session = tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()])
    else:
        session = staging.StagingSession()
    with session as sess:
        step = sess.make_callable(x) if how == "make_callable" else lambda: sess.run(x)
        step()
        monkeypatch.setattr(ByFetches, "of", noted)
        step()
    assert len(asked) == (how != "make_callable")


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_hook_keeps_the_figures_of_a_session_that_has_failed(graph: Any, lockstep: bool) -> None:
    x, fails = staging.staged(numbers(), lockstep=lockstep), tf.placeholder_with_default(False, [])
    with tf.control_dependencies([x]), tf.control_dependencies([tf.debugging.Assert(~fails, ["on purpose"])]):
        step = tf.identity(x)
    hook = staging.StagingHook()
    with pytest.raises(tf.errors.InvalidArgumentError), tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
        for number in range(4):
            sess.run(step, {fails: number == 3})
    (figures,) = hook.stats()
    assert figures.batches == 4 and figures.failed_numbers == (3,)
    assert hook.stats() == [figures] and feed_threads() == []


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("kind", ["source", "dataset"])
def test_a_callable_returns_what_run_returns(graph: Any, kind: str, lockstep: bool) -> None:
    words = [b"a", b"\0b", b"c", b"d"]
    source = ArraySource({"n": np.arange(4), "word": np.array(words, object)}, batch_size=1, epochs=1)
    dataset = tf.data.Dataset.from_tensor_slices({"n": tf.range(4, dtype=tf.int64), "word": words})
    x = staging.staged(source if kind == "source" else dataset, lockstep=lockstep)
    sparse = tf.SparseTensor([[0]], [1.0], [4])
    fetches = [{"two": (x["n"], [x["word"], x["n"].op, "staged/doubled:0"])}, sparse]
    tf.multiply(x["n"], 2, name="staged/doubled")
    with staging.StagingSession() as sess:
        step, with_sparse = sess.make_callable(fetches[0]), sess.make_callable(fetches)
        found = [step(), with_sparse()[0], sess.run(fetches[0]), step()]
    for number, each in enumerate(found):
        (n, (word, nothing, doubled)) = each["two"]
        assert (n, doubled, nothing) == (number, 2 * number, None) and np.ravel(word)[0] == words[number]
    assert isinstance(found[1]["two"], tuple) and isinstance(found[3]["two"][1], list)


def test_lockstep_in_a_plain_session_is_refused(graph: Any) -> None:
    staging.staged(numbers(3), lockstep=True, name="train")
    with tf.Session() as sess, pytest.raises(ValueError) as caught:
        staging.start(sess)
    text = str(caught.value)
    assert text.startswith("'train' (made at test_session.py:") and text.endswith(
        "is in lockstep: its put must be added to every step, which start() cannot do. Use StagingSession or "
        "StagingHook, or staged(..., lockstep=False)."
    )


def test_start_wants_a_session(graph: Any) -> None:
    with pytest.raises(ValueError, match=r"start\(\) got no session, and there is no default session. Pass sess=."):
        staging.start()


def test_start_wants_initialised_variables(graph: Any) -> None:
    tf.get_variable("weights", [2])
    staging.staged(numbers(3))
    with (
        tf.Session() as sess,
        pytest.raises(UninitializedError, match=r"start\(\): cannot start the feed threads: .*: weights. Run"),
    ):
        staging.start(sess)
    assert feed_threads() == []


def test_a_closed_session_says_so(graph: Any) -> None:
    x = staging.staged(numbers())
    sess = staging.StagingSession()
    step = sess.make_callable(x)
    for _ in range(2):
        sess.close()
    for run in (lambda: sess.run(x), step):
        with pytest.raises(RuntimeError, match=r"StagingSession \(made at test_session.py:\d+\) is closed. Create a"):
            run()


def test_forgetting_to_close_warns(graph: Any) -> None:
    x = staging.staged(numbers())
    sess = staging.StagingSession()
    sess.run(x)
    with pytest.warns(UnclosedWarning, match=r"made at test_session.py:\d+\) was never closed. Use it in a `with` blo"):
        sess.__del__()
    sess.close()


@pytest.mark.parametrize("error", [UserError, KeyboardInterrupt])
def test_a_start_that_is_interrupted_leaves_no_thread(graph: Any, monkeypatch: Any, error: type[BaseException]) -> None:
    # A thread that is in TensorFlow while the interpreter ends aborts the process.
    reading, stopped = threading.Event(), threading.Event()
    stop = Feeding.stop

    def slowly(batch: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            reading.set()
            stopped.wait(60)
        return batch

    def stop_and_tell(feeding: Feeding) -> None:
        stop(feeding)
        stopped.set()

    def interrupted(*args: Any, **options: Any) -> Any:
        reading.wait(60)
        raise error

    staging.staged(ArraySource(np.arange(100), batch_size=1, transform=slowly))
    monkeypatch.setattr(Feeding, "stop", stop_and_tell)
    monkeypatch.setattr(runtime, "SessionRuntime", interrupted)
    with pytest.raises(error):
        staging.StagingSession()
    assert not feed_threads()


def test_drain_ends_an_endless_source(graph: Any) -> None:
    x = staging.staged(numbers(), capacity=3)
    with staging.StagingSession() as sess:
        got = [int(sess.run(x)[0]) for _ in range(2)]
        sess.drain()
        while not sess.should_stop():
            got.append(int(sess.run(x)[0]))
    assert got == list(range(len(got))) and len(got) <= 2 + 3 + 2, "in order, and no more than was read"


def test_an_area_by_hand_is_cleared_at_the_start_on_a_server(graph: Any) -> None:
    server = tf.train.Server.create_local_server()
    area = staging.StagingArea([tf.int32], [[]])
    put, size, ops = area.put([1]), area.size(), set()
    for _ in range(2):
        with staging.StagingSession(master=server.target) as sess:
            assert sess.run(size) == 0, "what the server has kept is gone"
            sess.run(put)
            assert sess.run(size) == 1
            ops.add(len(graph.get_operations()))
    assert len(ops) == 1, "the second session needs no further op"


@pytest.mark.slow_cases("(?!staged, 1 threads, 1 towers|queue|staged in lockstep, 1 towers).*")
@pytest.mark.parametrize("kind", PIPELINES)
def test_the_limit_for_operations_does_not_end_the_feed(graph: Any, kind: str) -> None:
    batches = build(kind, Numbers(12), capacity=4) if kind.startswith("queue") else build(kind, Numbers(12))
    with staging.StagingSession(config=tf.ConfigProto(operation_timeout_in_ms=100)) as sess:
        # Longer than that limit: the feed threads wait for room.
        threading.Event().wait(0.5)
        got = to_the_end(sess.run, batches)
    assert sorted(number for tower in got for number in tower) == list(range(12))
