"""What a restore or an initializer sets after the start: it decides, as if it had come before the start.

Each row is a program of (init, start, run, event, run, save), and another one that resumes what it has saved. What the
steps of both get is compared with the batches of the source from the position that the event has set.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resuming import Counting
from slow import examples

import staging_tf1 as staging
from staging_tf1.errors import BuildError, CheckpointError, ClusterError, ResumeError
from staging_tf1.sources import ArraySource, GeneratorSource

RECORDS = 60
# The position in the checkpoint, the steps before the event, and those after it.
SAVED, BEFORE, AFTER = 4, 3, 3
TOWERS = ["/cpu:0"] * 2
QUIET = dict(save_checkpoint_steps=None, save_checkpoint_secs=None, save_summaries_steps=0, log_step_count_steps=0)


def source(**options: Any) -> Any:
    return ArraySource(np.arange(RECORDS), **{"batch_size": 1, "epochs": 1, **options})


def numbers() -> Iterator[Any]:
    for number in range(RECORDS):
        yield np.array([number])


def dataset() -> Any:
    return tf.data.Dataset.range(RECORDS).batch(1)


def generator() -> Any:
    return GeneratorSource(numbers, spec=tf.TensorSpec([1], tf.int64), resume="skip")


KINDS: dict[str, Callable[[], list[Any]]] = {
    "source": lambda: [staging.staged(source())],
    "shuffled": lambda: [staging.staged(source(shuffle=True, seed=3))],
    "three threads": lambda: [staging.staged(source(), num_threads=3, capacity=5)],
    "lockstep": lambda: [staging.staged(source(), lockstep=True)],
    "processes": lambda: [staging.staged(source(), num_processes=1)],
    "dataset": lambda: [staging.staged(dataset())],
    "dataset in lockstep": lambda: [staging.staged(dataset(), lockstep=True)],
    "generator": lambda: [staging.staged(generator())],
    "stream with a state": lambda: [staging.staged(Counting())],
    "towers": lambda: staging.staged(source(), devices=TOWERS),
    "towers of a dataset": lambda: staging.staged(dataset(), devices=TOWERS),
    "towers in lockstep": lambda: staging.staged(source(), devices=TOWERS, lockstep=True),
    "two pipelines": lambda: [staging.staged(source(), name="a"), staging.staged(source(), name="b")],
    "one in lockstep": lambda: [staging.staged(source()), staging.staged(source(), name="b", lockstep=True)],
}


def expected(kind: str, first: int, steps: int) -> list[list[int]]:
    """Return what the steps from position `first` on get."""
    batches = range(first, first + steps)
    if kind.startswith("towers"):
        return [[2 * number, 2 * number + 1] for number in batches]
    if kind == "shuffled":
        order = source(shuffle=True, seed=3)
        return [[int(order.batch(number)[0])] for number in batches]
    return [[number] * (2 if kind in ("two pipelines", "one in lockstep") else 1) for number in batches]


class Program(NamedTuple):
    """The graph of a program."""

    batches: list[Any]
    weights: Any
    positions: list[Any]
    init: Any
    saver: Any
    position_saver: Any
    weights_saver: Any
    init_positions: Any


def build(kind: str) -> Program:
    batches = KINDS[kind]()
    weights = tf.get_variable("weights", [2], initializer=tf.zeros_initializer())
    tf.train.get_or_create_global_step()
    positions = [variable for variable in tf.global_variables() if variable.op.name.endswith("/position")]
    beside = [variable for variable in tf.global_variables() if variable.op.name.endswith(("print", "/state"))]
    savers = [tf.train.Saver(), tf.train.Saver(positions + beside), tf.train.Saver([weights])]
    init = tf.global_variables_initializer()
    return Program(batches, weights, positions, init, *savers, tf.variables_initializer(positions + beside))


def loaded(program: Program, session: Any) -> None:
    for position in program.positions:
        position.load([7] * position.eval(session).size, session)


# What a program does after the start, in its session, with the path of a checkpoint; and the position that it sets.
EVENTS: dict[str, tuple[Callable[[Program, Any, str], Any], int | None]] = {
    "restore": (lambda program, session, path: program.saver.restore(session, path), SAVED),
    "init": (lambda program, session, path: session.run(program.init), 0),
    "restore op": (
        lambda program, session, path: session.run(
            program.saver.saver_def.restore_op_name, {program.saver.saver_def.filename_tensor_name: path}
        ),
        SAVED,
    ),
    "callable": (lambda program, session, path: session.make_callable(program.init)(), 0),
    "positions initialized": (lambda program, session, path: session.run(program.init_positions), 0),
    "load": (lambda program, session, path: loaded(program, session), 7),
    "restore of positions": (lambda program, session, path: program.position_saver.restore(session, path), SAVED),
    "restore of weights": (lambda program, session, path: program.weights_saver.restore(session, path), None),
}


class Acts(tf.train.SessionRunHook):  # type: ignore[misc]
    """Calls `act` with the session when that is created, or before its next run."""

    def __init__(self, created: bool = False) -> None:
        self.created, self.act = created, None

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self.created:
            self._act(session)

    def before_run(self, context: Any) -> None:
        self._act(context.session)

    def _act(self, session: Any) -> None:
        if self.act is not None:
            act, self.act = self.act, None
            act(session)


@contextmanager
def plain(start: Callable[..., Any], program: Program) -> Iterator[tuple[Any, Any]]:
    with tf.Session() as sess:
        sess.run(program.init)
        coord = tf.train.Coordinator()
        threads = start(sess, coord)
        yield sess.run, lambda act: act(sess)
        coord.request_stop()
        coord.join(threads)


@contextmanager
def supervised(program: Program) -> Iterator[tuple[Any, Any]]:
    supervisor = tf.train.Supervisor(saver=program.saver, summary_op=None)
    with supervisor.managed_session() as sess:
        yield sess.run, lambda act: act(sess)


@contextmanager
def monitored(session: Any, hook: Acts | None = None) -> Iterator[tuple[Any, Any]]:
    def do(act: Any) -> None:
        if hook is None:
            session.run_step_fn(lambda step_context: act(step_context.session))
        else:
            hook.act = act

    with session:
        yield session.run, do


def before_run(program: Program) -> Any:
    hook = Acts()
    return monitored(staging.StagingSession(hooks=[hook], **QUIET), hook)


def monitored_training(*hooks: Any) -> Any:
    return tf.train.MonitoredTrainingSession(hooks=list(hooks), **QUIET)


# Each yields the `run` of steps, and a function that lets the program act in the session.
SESSIONS: dict[str, Callable[[Program], Any]] = {
    "start": lambda program: plain(staging.start, program),
    "runners": lambda program: plain(tf.train.start_queue_runners, program),
    "Supervisor": supervised,
    "StagingSession": lambda program: monitored(staging.StagingSession(**QUIET)),
    "StagingHook": lambda program: monitored(monitored_training(staging.StagingHook())),
    "without our hook": lambda program: monitored(monitored_training()),
    "before_run": before_run,
}
NO_LOCKSTEP = ("start", "runners", "Supervisor", "without our hook")


def taken(run: Any, program: Program, steps: int) -> list[list[int]]:
    return [[int(value[0]) for value in run(program.batches)] for _ in range(steps)]


_checkpoints: dict[str, str] = {}


@pytest.fixture
def checkpoint(kind: str, tmp_path_factory: Any) -> str:
    """The path of a checkpoint with the position `SAVED`."""
    if kind not in _checkpoints:
        path = str(tmp_path_factory.mktemp("saved") / "model")
        with tf.Graph().as_default():
            program = build(kind)
            with SESSIONS["StagingSession"](program) as (run, do):
                assert taken(run, program, SAVED) == expected(kind, 0, SAVED)
                do(lambda session: program.saver.save(session, path))
        _checkpoints[kind] = path
    return _checkpoints[kind]


def resumed(kind: str, path: str, steps: int) -> list[list[int]]:
    """Return what the steps of a program get that restores `path` before the start."""
    with tf.Graph().as_default():
        program = build(kind)
        scaffold = tf.train.Scaffold(init_fn=lambda _, session: program.saver.restore(session, path))
        with staging.StagingSession(scaffold=scaffold, **QUIET) as sess:
            return taken(sess.run, program, steps)


def check(kind: str, program: Program, steps: Any, do: Any, position: int, path: str) -> None:
    """Check that the steps go on at `position`, and so does the program that resumes what this one saves."""
    assert taken(steps, program, AFTER) == expected(kind, position, AFTER)
    do(lambda session: program.saver.save(session, path))
    # In a hook, it acts in the next step.
    assert taken(steps, program, 1) == expected(kind, position + AFTER, 1)
    assert resumed(kind, path, 2) == expected(kind, position + AFTER, 2)


@pytest.mark.thinned
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("session", SESSIONS)
def test_what_is_set_in_a_session_decides(
    graph: Any, session: str, kind: str, event: str, checkpoint: str, tmp_path: Path
) -> None:
    if "lockstep" in kind and session in NO_LOCKSTEP:
        pytest.skip("lockstep needs StagingSession or StagingHook")
    program = build(kind)
    act, position = EVENTS[event]
    with SESSIONS[session](program) as (run, do):
        assert taken(run, program, BEFORE) == expected(kind, 0, BEFORE)
        do(lambda session: act(program, session, checkpoint))
        check(kind, program, run, do, BEFORE if position is None else position, str(tmp_path / "model"))


# test_what_is_set_in_a_session_decides has these kinds.
@pytest.mark.slow_cases(".*-(shuffled|stream with a state|two pipelines|.* a dataset|.* in lockstep|three threads)-.*")
@pytest.mark.thinned
@pytest.mark.parametrize("event", ["restore", "load"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["before ours", "after ours"])
def test_what_a_hook_sets_in_a_new_session_decides(
    graph: Any, order: str, kind: str, event: str, checkpoint: str, tmp_path: Path
) -> None:
    program, hook = build(kind), Acts(created=True)
    act, position = EVENTS[event]
    hook.act = lambda session: act(program, session, checkpoint)
    hooks = [hook, staging.StagingHook()]
    with monitored(monitored_training(*(hooks if order == "before ours" else hooks[::-1]))) as (run, do):
        check(kind, program, run, do, position or 0, str(tmp_path / "model"))


ACTIONS = st.lists(
    st.one_of(
        st.integers(1, 4),
        st.sampled_from(["save", "restore", "init", "stop and start", "stop, restore and start", "to the end"]),
    ),
    min_size=3,
    max_size=10,
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, start=st.sampled_from([staging.start, tf.train.start_queue_runners]))
def test_any_order(tmp_path: Path, actions: list[Any], start: Any) -> None:
    """A model of numbers follows a plain session through any order of its events."""
    with tf.Graph().as_default():
        batch, saver = staging.staged(source(), capacity=2), None
        saver, init = tf.train.Saver(), tf.global_variables_initializer()
        path, saved, position = str(tmp_path / "model"), None, 0
        with tf.Session() as sess:
            sess.run(init)
            coord = tf.train.Coordinator()
            threads = start(sess, coord)
            for action in actions:
                if isinstance(action, int):
                    for number in range(position, position + action):
                        if number < RECORDS:
                            assert sess.run(batch).tolist() == [number]
                    position = min(position + action, RECORDS)
                if action == "to the end":
                    with pytest.raises(tf.errors.OutOfRangeError):
                        while True:
                            assert sess.run(batch).tolist() == [position]
                            position += 1
                    assert position == RECORDS
                restores = "restore" in str(action) and saved is not None
                # A start at the end is refused.
                stops = "stop" in str(action) and (saved if restores else position) < RECORDS
                if stops:
                    coord.request_stop()
                    coord.join(threads)
                if action == "save":
                    saver.save(sess, path)
                    saved = position
                if restores:
                    saver.restore(sess, path)
                    position = saved
                if action == "init":
                    sess.run(init)
                    position = 0
                if stops:
                    coord = tf.train.Coordinator()
                    threads = start(sess, coord)
            if position < RECORDS:
                assert sess.run(batch).tolist() == [position]
            coord.request_stop()
            coord.join(threads)


def test_the_log_says_which_position_counts_and_its_cure_works(graph: Any, tmp_path: Path, caplog: Any) -> None:
    batch = staging.staged(source(), name="train")
    tf.get_variable("weights", [])
    saver, init = tf.train.Saver(), tf.global_variables_initializer()
    with plain(staging.start, Program([batch], None, [], init, saver, None, None, None)) as (run, do):
        run(batch)
        do(lambda session: saver.save(session, str(tmp_path / "model")))
        run(batch), run(batch)
        with caplog.at_level(logging.INFO):
            do(lambda session: saver.restore(session, str(tmp_path / "model")))
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert "'train': a restore or an initializer has set its position after the start." in line
        assert "had consumed 3 batches; they continue at batch 1." in line
        rest = eval(line.partition("its own position, use ")[2].rstrip("."), {"tf": tf})
        run(batch)
        do(lambda session: rest.restore(session, str(tmp_path / "model")))
        do(lambda session: saver.restore(session, saver.save(session, str(tmp_path / "same"))))
        assert run(batch).tolist() == [2], "the same position changes nothing"


@pytest.mark.parametrize("mode", ["exact", "ignore", "restart"])
@pytest.mark.parametrize("lockstep", [False, True])
def test_the_checkpoint_of_another_order(tmp_path: Path, mode: str, lockstep: bool) -> None:
    """`resume=` decides, as before the start. After a refusal, the steps and checkpoints are as without the restore."""
    path = str(tmp_path / "model")
    with tf.Graph().as_default():
        batch = staging.staged(source(shuffle=True, seed=1), name="train")
        saver = tf.train.Saver()
        with monitored(staging.StagingSession(**QUIET)) as (run, do):
            for _ in range(SAVED):
                run(batch)
            do(lambda session: saver.save(session, path))
    order = source(shuffle=True, seed=2)
    first = {"exact": BEFORE, "ignore": SAVED, "restart": 0}[mode]
    with tf.Graph().as_default():
        batch = staging.staged(order, name="train", resume=mode, lockstep=lockstep)
        saver = tf.train.Saver()
        tf.train.get_or_create_global_step()
        with monitored(staging.StagingSession(**QUIET)) as (run, do):
            assert [run(batch)[0] for _ in range(BEFORE)] == [order.batch(number)[0] for number in range(BEFORE)]
            if mode == "exact":
                with pytest.raises(ResumeError, match=r"'train': the checkpoint holds position 4.*seed was 1, is 2"):
                    do(lambda session: saver.restore(session, path))
            else:
                do(lambda session: saver.restore(session, path))
            assert [run(batch)[0] for _ in range(3)] == [order.batch(number)[0] for number in range(first, first + 3)]
            (position,) = tf.global_variables("train/position")
            assert run(position).tolist() == [first + 3]


def test_a_damaged_position_is_refused_and_the_steps_go_on(graph: Any) -> None:
    batch = staging.staged(source(), name="train")
    (position,) = tf.global_variables("train/position")
    init = tf.global_variables_initializer()
    with plain(staging.start, Program([batch], None, [], init, *[None] * 4)) as (run, do):
        run(batch)
        with pytest.raises(CheckpointError, match="'train/position' in the checkpoint is damaged"):
            do(lambda session: position.load([-1], session))
        assert run([batch, position])[0].tolist() == [1]
        assert run(position).tolist() == [2]


@pytest.mark.parametrize("how", ["plain", "cond", "function"])
def test_one_run_may_not_set_the_position_and_take(graph: Any, how: str) -> None:
    batch = staging.staged(source(), name="train")
    (position,) = tf.global_variables("train/position")
    begins = tf.placeholder_with_default(False, [])
    if how == "plain":
        reset = position.initializer
    elif how == "cond":
        reset = tf.cond(begins, lambda: position.assign([0]).op, tf.no_op)
    else:
        reset = tf.function(lambda: position.assign([0]))()
    with staging.StagingSession(**QUIET) as sess:
        assert [sess.run(batch).tolist() for _ in range(2)] == [[0], [1]]
        with pytest.raises(BuildError, match="'train'.*one run sets its position and takes a batch"):
            sess.run([reset, batch])
        assert sess.run(batch).tolist() == [2]
        sess.run(reset, {begins: True})
        assert sess.run(batch).tolist() == [0]


def test_a_cluster_refuses_what_sets_its_position(tmp_path: Path) -> None:
    with only_worker() as cluster, tf.Graph().as_default(), cluster.device_scope():
        batch = staging.staged(source(), cluster=cluster, name="train")
        weights = tf.get_variable("weights", [])
        tf.train.get_or_create_global_step()
        saver, init, rest = tf.train.Saver(), tf.global_variables_initializer(), tf.train.Saver([weights])
        path = str(tmp_path / "model")
        with monitored(staging.StagingSession(cluster=cluster, **QUIET)) as (run, do):
            run(batch)
            do(lambda session: saver.save(session, path))
            for act in (lambda session: saver.restore(session, path), lambda session: session.run(init)):
                with pytest.raises(ClusterError, match=r"'train'.*sets its position after the workers.*tf.train.Saver"):
                    do(act)
            do(lambda session: rest.restore(session, path))
            assert run(batch).tolist() == [1]


def test_a_pipeline_that_is_staged_again_begins_anew_with_the_first(graph: Any, tmp_path: Path) -> None:
    batch = staging.staged(staging.staged(source(), name="first"), capacity=4, name="second")
    init = tf.global_variables_initializer()
    with plain(staging.start, Program([batch], None, [], init, *[None] * 4)) as (run, do):
        for _ in range(3):
            assert [run(batch).tolist() for _ in range(5)] == [[number] for number in range(5)]
            with pytest.raises(BuildError, match="'second'.*one run sets its position and takes a batch"):
                run([batch, init])
            do(lambda session: session.run(init))


def test_pipelines_begin_anew_in_turn(graph: Any) -> None:
    """The end of one that started with the other does not cancel that one, which has begun anew since."""
    a, b = (staging.staged(source(), name=name) for name in "ab")
    inits = [tf.variables_initializer(tf.global_variables(f"{name}/")) for name in "ab"]
    init = tf.global_variables_initializer()
    with plain(staging.start, Program([a, b], None, [], init, *[None] * 4)) as (run, do):
        for _ in range(5):
            assert [value.tolist() for value in run([a, b])] == [[0], [0]]
            for one in inits:
                do(lambda session, one=one: session.run(one))


def test_a_failed_restore_changes_nothing(graph: Any, tmp_path: Path) -> None:
    batch = staging.staged(source())
    saver, init = tf.train.Saver(), tf.global_variables_initializer()
    with plain(staging.start, Program([batch], None, [], init, saver, None, None, None)) as (run, do):
        run(batch)
        with pytest.raises(ValueError, match="not a valid checkpoint"):
            do(lambda session: saver.restore(session, str(tmp_path / "none")))
        assert run(batch).tolist() == [1]


@pytest.mark.parametrize("what", ["restore", "iterator"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_renewal_in_another_thread(graph: Any, what: str, threads: int, tmp_path: Path) -> None:
    """A step that waits gets its batch, and the next one waits until the renewal is done."""
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(10**9).batch(1))
    values = iterator.get_next() if what == "iterator" else ArraySource(np.arange(10**6), batch_size=1)
    batch = staging.staged(values)
    saver, path = tf.train.Saver(tf.global_variables() or [tf.get_variable("w", [])]), str(tmp_path / "model")
    passes = 10
    with staging.StagingSession(hooks=[Initializes(iterator.initializer)], **QUIET) as sess:
        raw = sess._hook.session
        saver.save(raw, path)
        done, errors = threading.Event(), []
        seen: list[list[int]] = [[] for _ in range(threads)]

        def steps(mine: list[int]) -> None:
            try:
                while not done.is_set():
                    mine.append(int(sess.run(batch)[0]))
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=steps, args=(mine,)) for mine in seen]
        for worker in workers:
            worker.start()
        for _ in range(passes):
            while not errors and not all(seen):
                done.wait(0.001)
            raw.run(iterator.initializer) if what == "iterator" else saver.restore(raw, path)
        done.set()
        for worker in workers:
            worker.join()
        assert not errors
        got = sorted(number for mine in seen for number in mine)
        # Each pass has its first batches, without a gap, once.
        counts = np.bincount(got)
        assert counts[0] <= passes + 1 and (np.diff(counts) <= 0).all()


class Supplies(logging.Handler):
    """Calls `supply` at a warning that a renewal waits, and keeps its text."""

    def __init__(self, supply: Callable[[], Any]) -> None:
        super().__init__()
        self.supply, self.told = supply, []

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting for at most" in record.getMessage() or "neither goes on" in record.getMessage():
            self.told.append(record.getMessage())
            self.supply()


@pytest.mark.parametrize("what", ["step", "source"])
def test_a_renewal_says_what_it_waits_for(graph: Any, what: str, tmp_path: Path) -> None:
    """A step, or a source, that waits for what the restoring thread would do next."""
    supplied, reading = threading.Event(), threading.Event()

    def slowly(batch: Any) -> Any:
        if what == "source" and batch[0] == 3:
            reading.set()
            supplied.wait(60)
        return batch

    batch = staging.staged(source(transform=slowly), capacity=1, name="train")
    (position,) = tf.global_variables("train/position")
    queue = tf.FIFOQueue(1, tf.int64, [])
    enqueue, step = queue.enqueue(7), [batch, queue.dequeue()]
    saver, init = tf.train.Saver(), tf.global_variables_initializer()
    supplies = Supplies(supplied.set)
    logger = logging.getLogger("absl")
    logger.addHandler(supplies)
    try:
        with plain(staging.start, Program([batch], None, [], init, saver, None, None, None)) as (run, do):
            do(lambda session: saver.save(session, str(tmp_path / "model")))
            if what == "step":
                stepping = threading.Thread(target=run, args=(step,), name="trainer")
                supplies.supply = lambda: run(enqueue)
                stepping.start()
                while not run(position)[0]:
                    supplied.wait(0.001)
            else:
                run(batch), run(batch)
                assert reading.wait(60)
            do(lambda session: saver.restore(session, str(tmp_path / "model")))
            if what == "step":
                stepping.join()
            assert run(batch).tolist() == [0]
    finally:
        logger.removeHandler(supplies)
    (told,) = supplies.told
    if what == "step":
        assert re.fullmatch(
            r"'train' \(made at .*\): thread 'MainThread' sets its position or initializes its iterator, and waits for "
            r"a step that takes from it, in thread 'trainer', for at most 600 s\. If that step waits for what thread "
            r"'MainThread' does next, neither goes on: run the restore or the initializer between two steps, in the "
            r"thread that runs them\.",
            told,
        )
    else:
        assert re.fullmatch(
            r"'train' \(made at .*\): it starts again when feed thread 'feed:train:0' has returned, which is in the "
            r"source: waiting for at most 600 s\. If the source waits for what thread 'MainThread' does "
            r"next, let it return before\.",
            told,
        )


class Initializes(tf.train.SessionRunHook):  # type: ignore[misc]
    """The idiom of input functions with an iterator."""

    def __init__(self, initializer: Any) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)
