"""Ctrl-C ends each op that waits, and names what it waits for. Real processes and signals."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from load import slowdown
from waits import ENDS, HANGS, check, interrupt

import staging_tf1 as staging
from staging_tf1.sources import ArraySource


@pytest.mark.slow_cases(".*-(sparse|map get any|map incomplete|map peek|barrier|accumulator)")
@pytest.mark.thinned
@pytest.mark.parametrize("op", [*ENDS, *HANGS])
@pytest.mark.parametrize("kind", ["StagingSession", "start"])
def test_ctrl_c_ends_what_waits_and_names_it(fork_server: ForkServer, tmp_path: Path, kind: str, op: str) -> None:
    check(fork_server, tmp_path, kind, op)


GRACE_SECS = 2.0
# The first step takes a batch, the second one waits for a source that hangs.
HANGING_SOURCE = f"""
import os, signal, sys, threading, time
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging

tf.disable_v2_behavior()
kind, number, folder = sys.argv[1:]
began = []

def hang():
    time.sleep(1000)

def batches():
    yield np.arange(2)
    while not began:
        time.sleep(0.01)
    threading.Timer(0.5, shoot).start()
    hang()

def shoot():
    began.append(time.perf_counter())
    os.kill(os.getpid(), int(number))

x = staging.staged(staging.sources.GeneratorSource(batches, spec=tf.TensorSpec([None], tf.int64)), name="train")
tf.train.get_or_create_global_step()
with tf.control_dependencies([x]):
    step = tf.assign_add(tf.train.get_global_step(), 1)

def train(sess):
    sess.run(step)
    began.append(True)
    sess.run(step)

if kind == "StagingSession":
    try:
        with staging.StagingSession(checkpoint_dir=folder, stop_grace_period_secs={GRACE_SECS}) as sess:
            train(sess)
    finally:
        print(time.perf_counter() - began[-1])
else:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        staging.start(sess, coord)
        train(sess)
"""


@pytest.mark.parametrize(
    ("kind", "number"),
    [("StagingSession", signal.SIGINT), ("StagingSession", signal.SIGTERM), ("start", signal.SIGINT)],
)
def test_a_source_that_hangs_is_named_at_once(
    fork_server: ForkServer, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    # Not `-W ignore`: the warning must be shown where nobody asks for warnings.
    done = fork_server.run("-c", HANGING_SOURCE, kind, int(number), tmp_path / "saved", whole_end=True)
    assert done.returncode == (143 if number == signal.SIGTERM else -signal.SIGINT), done.stderr
    where = r"is still in the source after \d s \(batch 0, for \d+\.\d s\), at <string>:\d+ in hang\(\)\."
    if kind == "StagingSession":
        waiting = f"Waiting for a source, for at most 2 s: feed thread 'feed:train:0' {where}\n"
        assert re.search(waiting, done.stderr), done.stderr
        warned = f"StuckThreadWarning: feed thread 'feed:train:0' {where} It keeps running as a daemon. Make the source"
        assert re.search(warned, done.stderr), done.stderr
        # The coordinator does not wait as long again.
        assert float(done.stdout) < GRACE_SECS + 1.5 * slowdown()
        assert "Saved at step 1; start again to continue." in done.stderr
    else:
        text = (
            r"Ctrl-C ends a run that waits, at <string>:\d+ in train\(\): the source of 'train' .* in hang\(\), after 1"
        )
        assert re.search(text, done.stderr), done.stderr
    assert "Normalization failed" not in done.stderr and "OutOfRange" not in done.stderr, done.stderr


# Where the creation of a StagingSession hangs: its initializer, or a hook.
HANGING_CREATION = """
import os, signal, sys, threading, time
import tensorflow.compat.v1 as tf
import staging_tf1 as staging

tf.disable_v2_behavior()
where, what = sys.argv[1:]

def hang():
    time.sleep(1000)

queue = tf.FIFOQueue(2, tf.int64, [], name="numbers")
value = queue.dequeue() if what == "queue" else tf.py_func(lambda: hang() or 1, [], tf.int64)
if where == "initializer":
    tf.get_variable("first", initializer=lambda: tf.reshape(value, []), dtype=tf.int64)

def say_when_it_waits(ident=threading.get_ident()):
    seen = 0
    while seen < 5:
        frame = sys._current_frames()[ident]
        seen = seen + 1 if frame.f_code.co_name in ("_call_tf_sessionrun", "_single_operation_run") else 0
        time.sleep(0.02)
    print("waits", flush=True)

class Hook(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        if where == "hook":
            watcher.start()
            session.run(value)

watcher = threading.Thread(target=say_when_it_waits, daemon=True)
if where == "initializer":
    watcher.start()
with staging.StagingSession(hooks=[Hook()]) as sess:
    sess.run(tf.no_op())
"""


@pytest.mark.parametrize("where", ["initializer", "hook"])
@pytest.mark.parametrize("what", ["queue", "py_func"])
def test_ctrl_c_ends_the_creation_of_a_session(fork_server: ForkServer, tmp_path: Path, where: str, what: str) -> None:
    code, told = interrupt(fork_server, tmp_path, HANGING_CREATION, where, what)
    if what == "queue":
        assert code == -signal.SIGINT and told.endswith("KeyboardInterrupt\n"), told
        assert told.count("Ctrl-C ends a run that waits, at waits.py:") == 1 and "queue 'numbers'" in told, told
        assert "Another Ctrl-C" not in told, told
    else:
        assert code == 130, told
        assert "Ctrl-C: still running: the run, at waits.py:" in told and "in hang()" in told, told
        assert "Ctrl-C again: the program ends at once." in told, told


def test_a_session_outside_the_main_thread_says_that_no_signal_saves(graph: Any, tmp_path: Path, caplog: Any) -> None:
    staging.staged(ArraySource(np.arange(4), batch_size=2))
    tf.train.get_or_create_global_step()

    def train(**options: Any) -> None:
        with graph.as_default(), staging.StagingSession(checkpoint_dir=tmp_path, **options):
            pass

    for options in ({}, {"save_on_stop": False}):
        thread = threading.Thread(target=train, name="trainer", kwargs=options)
        thread.start()
        thread.join()
    train()
    told = [record.getMessage() for record in caplog.records if "save no checkpoint" in record.getMessage()]
    assert told == [
        "Ctrl-C and SIGTERM save no checkpoint (save_on_stop=True): this session was created in thread 'trainer', and "
        "Python handles signals in the main thread only. Create the session in the main thread."
    ]
