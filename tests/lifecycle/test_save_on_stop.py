"""Ctrl-C and SIGTERM save a checkpoint: a model that counts its records says what was lost or trained twice."""

from __future__ import annotations

import signal
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from slow import some_of

RECORDS = 60
BATCH = 5
# A signal meets step 4: while it waits for input, within it, or just before it. In lockstep a step reads the next
# step's batch before it runs.
PROGRAM = f"""
import os, signal, sys, threading, time
import numpy as np
import staging_tf1 as staging
import tensorflow.compat.v1 as tf
from staging_tf1.sources import ArraySource, MapSource

RECORDS, BATCH = {RECORDS}, {BATCH}
folder, number, how, shape, session, *extra = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)
if "own handler" in extra:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
gate = threading.Event()
steps = 0
done = []

def shoot():
    os.kill(os.getpid(), int(number))

def shoot_when_a_step_waits():
    while shape != "lockstep" and (steps < 4 or not hook.runtime.steps.timed.pending):
        time.sleep(0.001)
    # A signal before the step has taken from the other one finds nothing that could be lost.
    while shape == "pipelines" and hook.stats()[-1].batches < 5:
        time.sleep(0.001)
    shoot()

class Numbers:
    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        if how == "wait" and index == 4 * BATCH * (2 if shape == "towers" else 1):
            threading.Thread(target=shoot_when_a_step_waits, daemon=True).start()
            gate.wait(60)
        return np.int64(index)

class OtherSaver(tf.train.Saver):
    def save(self, *args, **kwargs):
        if "last" in extra and steps == 3 and not done:
            done.append(True)
            shoot()
        if steps and "in a run" in extra:
            args[0].run(signals)
        if steps and "full" in extra:
            raise OSError(28, "No space left on device")
        return super().save(*args, **kwargs)

def inputs():
    source = MapSource(Numbers(), batch_size=BATCH, epochs=1)
    if shape == "towers":
        return staging.staged(source, devices=["/cpu:0"] * 2)
    found = [staging.staged(source, lockstep=shape == "lockstep")]
    if shape == "pipelines":
        found.append(staging.staged(ArraySource(np.arange(RECORDS, 2 * RECORDS), batch_size=BATCH, epochs=1)))
    return found

def signal_in_a_run():
    shoot()
    print("not ended", flush=True)

class SavesPart(tf.train.SessionRunHook):
    def after_run(self, context, values):
        if steps == 2:
            part.save(context.session, folder + "/best/model.ckpt", steps)

def in_step(x):
    if steps == 4 and how == "in":
        shoot()
    if steps == 4 and how == "error":
        raise ValueError("of the step")
    return x

with tf.Graph().as_default():
    records = tf.py_func(in_step, [tf.concat(inputs(), 0)], tf.int64)
    seen = tf.get_variable("seen", [2 * RECORDS], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([tf.raw_ops.ResourceScatterAdd(
            resource=seen.handle, indices=records, updates=tf.ones_like(records))]):
        train = tf.train.get_or_create_global_step().assign_add(1)
    signals = tf.py_func(signal_in_a_run, [], [])
    part = tf.train.Saver([seen])
    options = dict(checkpoint_dir=folder, scaffold=tf.train.Scaffold(saver=OtherSaver()), stop_grace_period_secs=2.0)
    hooks = [SavesPart()] if "part" in extra else []
    if "never" in extra:
        options.update(save_checkpoint_secs=None)
    if "last" in extra:
        hooks = [tf.train.StopAtStepHook(3)]
        if session != "StagingSession":
            # After ours. That of a MonitoredTrainingSession itself comes before.
            hooks.append(tf.train.CheckpointSaverHook(options.pop("checkpoint_dir"), 600, scaffold=options["scaffold"]))
    if session == "StagingSession":
        sess = staging.StagingSession(save_on_stop="off" not in extra, hooks=hooks, **options)
        hook = sess._hook
    else:
        hook = staging.StagingHook(save_on_stop="off" not in extra)
        sess = tf.train.MonitoredTrainingSession(hooks=[hook, *hooks], **options)
    try:
        with sess:
            while not sess.should_stop():
                try:
                    sess.run(train)
                except tf.errors.UnknownError:
                    shoot()
                steps += 1
                if steps == 4 and how == "between":
                    shoot()
    finally:
        gate.set()
        print("SIGTERM is default:", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""

SESSIONS = ["StagingSession", "MonitoredTrainingSession"]
SHAPES = ["threads", "lockstep", "towers", "pipelines"]


class Stopped:
    """Runs of the program with one folder of checkpoints."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self._server, self._folder = server, folder

    def run(self, number: int, how: str, *what: str) -> subprocess.CompletedProcess[str]:
        """Run it until the signal ends it, or to the end of the data."""
        return self._server.run("-W", "ignore", "-c", PROGRAM, self._folder, int(number), how, *what, whole_end=True)

    def saved(self) -> tuple[int, list[int]]:
        """Return the step of the last checkpoint, and how often its model has seen each record."""
        path = tf.train.latest_checkpoint(str(self._folder))
        values = tf.train.load_checkpoint(path)
        return int(values.get_tensor("global_step")), np.asarray(values.get_tensor("seen")).tolist()


@pytest.fixture
def stopped(fork_server: ForkServer, tmp_path: Path) -> Stopped:
    return Stopped(fork_server, tmp_path / "checkpoints")


def code_of(number: int) -> int:
    """Return the exit code of a program that the signal has ended."""
    return 143 if number == signal.SIGTERM else -signal.SIGINT


SIGNALS = {"StagingSession": signal.SIGINT, "MonitoredTrainingSession": signal.SIGTERM}
# Of two pipelines, one waits when the other has given its batch: see the next test.
MOMENTS = [case for case in product(("wait", "in", "between"), SHAPES, SIGNALS) if case[:2] != ("wait", "pipelines")]


@pytest.mark.parametrize(("how", "shape", "session"), some_of(MOMENTS))
def test_the_next_run_goes_on_with_the_next_record(stopped: Stopped, how: str, shape: str, session: str) -> None:
    number = SIGNALS[session]
    done = stopped.run(number, how, shape, session)
    assert (done.returncode, done.stdout) == (code_of(number), "SIGTERM is default: True\n"), done.stderr
    step, seen = stopped.saved()
    assert step == (3 if (how, shape) == ("wait", "lockstep") else 5 if how == "in" else 4)
    batches = step * (2 if shape == "towers" else 1)
    assert seen[:RECORDS] == [1] * batches * BATCH + [0] * (RECORDS - batches * BATCH)

    done = stopped.run(0, "never", shape, session)
    assert done.returncode == 0, done.stderr
    assert stopped.saved()[1] == [1] * RECORDS + [int(shape == "pipelines")] * RECORDS


NOT_SAVED = {
    "the step took from one of two": ("wait", "pipelines", "after it had taken a batch"),
    # The session has ended before the signal.
    "the step has failed": ("error", "threads", ""),
    "off": ("between", "threads", ""),
}


@pytest.mark.thinned
@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("case", NOT_SAVED)
def test_what_is_not_saved(stopped: Stopped, case: str, session: str) -> None:
    how, shape, told = NOT_SAVED[case]
    done = stopped.run(signal.SIGINT, how, shape, session, case)
    # A MonitoredSession raises the error of the step once more.
    assert done.returncode in ([1, -signal.SIGINT] if how == "error" else [-signal.SIGINT]), done.stderr
    assert stopped.saved()[0] == 0
    assert told in done.stderr
    assert ("Nothing was saved" in done.stderr) == bool(told)


def test_a_hook_says_that_no_saver_has_saved(stopped: Stopped) -> None:
    done = stopped.run(signal.SIGINT, "between", "threads", "MonitoredTrainingSession", "never")
    assert done.returncode == -signal.SIGINT
    assert "The training was stopped, and nothing was saved: no saver of its graph has saved before." in done.stderr


def test_a_session_that_never_saves_says_nothing(stopped: Stopped) -> None:
    done = stopped.run(signal.SIGINT, "between", "threads", "StagingSession", "never")
    assert done.returncode == -signal.SIGINT
    assert "saved" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_second_signal_does_not_wait_for_the_run_that_saves(stopped: Stopped, number: int) -> None:
    done = stopped.run(number, "between", "threads", "StagingSession", "in a run")
    assert (done.returncode, done.stdout) == (-number, ""), done.stderr
    assert stopped.saved()[0] == 0


@pytest.mark.parametrize("session", SESSIONS)
def test_another_saver_of_the_program_is_not_that_of_the_checkpoints(stopped: Stopped, session: str) -> None:
    done = stopped.run(signal.SIGINT, "between", "threads", session, "part")
    assert done.returncode == -signal.SIGINT, done.stderr
    assert stopped.saved()[0] == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("session", SESSIONS)
def test_a_signal_during_the_last_save_does_not_lose_it(stopped: Stopped, session: str, number: int) -> None:
    done = stopped.run(number, "between", "threads", session, "last")
    assert (done.returncode, done.stdout) == (code_of(number), "SIGTERM is default: True\n"), done.stderr
    assert stopped.saved()[0] == 3


def test_a_checkpoint_that_cannot_be_saved_hides_no_ctrl_c(stopped: Stopped) -> None:
    done = stopped.run(signal.SIGINT, "between", "threads", "StagingSession", "full")
    assert done.returncode == -signal.SIGINT
    assert "checkpoint at the stop could not be saved: OSError: [Errno 28] No space left on device" in done.stderr


def test_the_programs_own_handler_of_sigterm_stays(stopped: Stopped) -> None:
    done = stopped.run(signal.SIGTERM, "between", "threads", "StagingSession", "own handler")
    assert (done.returncode, done.stdout) == (7, "SIGTERM is default: False\n"), done.stderr
    assert stopped.saved()[0] == 4
