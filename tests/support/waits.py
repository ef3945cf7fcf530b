"""A program whose main thread waits in one op, and what Ctrl-C must do about it."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from forked import ForkServer
from stalls import LIMIT_SECS

PROGRAM = """
import sys, threading, time
kind, op = sys.argv[1:]
if kind == "run":
    import tensorflow as tf
    StagingArea = tf.contrib.staging.StagingArea
    from tensorflow.python.ops.data_flow_ops import Barrier, MapStagingArea
else:
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    import staging_tf1 as staging
    from staging_tf1 import MapStagingArea, StagingArea
    from tensorflow.python.ops.data_flow_ops import Barrier

def hang():
    time.sleep(1000)

def numbers():
    yield 1
    hang()

def area():
    made = StagingArea([tf.int64], [[]], capacity=2)
    return made, made.put([7]), made.get()

def pairs(*arguments, put=lambda made: [], take):
    made = MapStagingArea([tf.int64, tf.string], [[], []], *arguments)
    made.put(1, [7, "a"])
    return take(made), put(made)

def of_area(which):
    made, put, got = area()
    warm_up = [put] * (2 if which == "put" else 0)
    return {"get": got, "put": put, "two gets": [got, made.get()], "peek": made.peek(1)}[which], warm_up

def of_queue(which):
    queue = tf.FIFOQueue(2, tf.int64, [], name="numbers")
    put, take = queue.enqueue(7), queue.dequeue()
    return {"dequeue": (take, []), "enqueue": (put, [put, put])}[which]

def of_accumulator(which):
    if which == "sparse":
        made = tf.SparseConditionalAccumulator(tf.float32, [2], name="gradients")
        made.apply_grad([0], [1.0], [2])
        return made.take_grad(2), []
    made = tf.ConditionalAccumulator(tf.float32, [], name="gradients")
    return made.take_grad(2), [made.apply_grad(1.0)]

def of_iterator():
    dataset = tf.data.Dataset.from_generator(numbers, tf.int64, [])
    taken = tf.data.make_one_shot_iterator(dataset).get_next()
    return taken, [taken]

key = tf.Variable(5, dtype=tf.int64, trainable=False, use_resource=True)
OPS = {
    **{name: lambda name=name: of_area(name) for name in ("get", "put", "two gets", "peek")},
    "map get": lambda: pairs(take=lambda made: made.get(key)[1]),
    "map get any": lambda: pairs(take=lambda made: made.get()),
    "map peek": lambda: pairs(take=lambda made: made.peek(5, indices=[1])),
    "map incomplete": lambda: pairs(take=lambda made: made.get(5)[1], put=lambda made: [made.put(5, [7], indices=[0])]),
    **{name: lambda name=name: of_queue(name) for name in ("dequeue", "enqueue")},
    "barrier": lambda: (Barrier([tf.int64], [[]], name="pairs").take_many(1), []),
    **{name: lambda name=name: of_accumulator(name) for name in ("accumulator", "sparse")},
    "iterator": of_iterator,
    "py_func": lambda: (tf.py_func(lambda: hang() or 1, [], tf.int64), []),
}
fetches, warm_up = OPS[op]()

def is_in_a_run(ident):
    frame = sys._current_frames()[ident]
    return frame.f_code.co_name in ("_call_tf_sessionrun", "_single_operation_run")

def say_when_it_waits(ident=threading.get_ident()):
    # A run that does not wait ends between two looks.
    seen = 0
    while seen < 5:
        seen = seen + 1 if is_in_a_run(ident) else 0
        time.sleep(0.02)
    print("waits", flush=True)

def train(sess):
    for each in warm_up:
        sess.run(each)
    threading.Thread(target=say_when_it_waits, daemon=True).start()
    sess.run(fetches)

if kind == "StagingSession":
    with staging.StagingSession() as sess:
        train(sess)
else:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        if kind == "start":
            staging.start(sess)
        train(sess)
"""

# What stderr names.
ENDS = {
    "get": "is empty: this run gets from it, and nothing puts into it.",
    "put": "is full (2 of 2), and this run puts into it, but nothing takes elements from it.",
    "two gets": "is empty: this run gets from it",
    "peek": "is empty",
    "map get": "is empty: this run gets from it",
    "map get any": "is empty: this run gets from it",
    "map peek": "is empty: this run gets from it",
    "map incomplete": "is empty: this run gets from it",
    "dequeue": "queue 'numbers'",
    "enqueue": "is full (2 of 2), and this run puts into it, but nothing takes elements from it.",
    "barrier": "barrier 'pairs'",
    "accumulator": "accumulator 'gradients'",
    "sparse": "has 0 gradients, and the step takes the mean of 2.",
}
# Nothing ends a Python function that sleeps: the second Ctrl-C ends the process.
HANGS = ("iterator", "py_func")


def interrupt(server: ForkServer, folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Let a program wait, send Ctrl-C, and if that does not end it, another one. Return its exit code and stderr."""
    program = folder / "waits.py"
    program.write_text(text)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with server.start("-W", "ignore", program, *arguments, whole_end=True, **streams) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "waits\n", running.stderr.read()
        # Where Ctrl-C does not end it.
        limit = threading.Timer(LIMIT_SECS, running.kill)
        limit.start()
        running.send_signal(signal.SIGINT)
        told = ""
        for line in running.stderr:
            told += line
            if "Another Ctrl-C" in line:
                running.send_signal(signal.SIGINT)
        limit.cancel()
        return running.wait(LIMIT_SECS), told


def check(server: ForkServer, folder: Path, kind: str, op: str) -> None:
    """Check that the first Ctrl-C ends a wait, and the second one a Python function, and what is said."""
    code, told = interrupt(server, folder, PROGRAM, kind, op)
    if op in HANGS:
        assert code == 130, told
        assert "Ctrl-C: still running: the run, at waits.py:" in told
        assert "it calls waits.py:" in told.replace("they call", "it calls") and "in hang()" in told
        assert "Another Ctrl-C ends the program at once." in told
        assert "Ctrl-C again: the program ends at once. Still running: the run, at waits.py:" in told
    else:
        assert code == -signal.SIGINT and told.endswith("KeyboardInterrupt\n"), told
        assert "Ctrl-C ends a run that waits, at waits.py:" in told and ENDS[op] in told, told
        assert "Another Ctrl-C" not in told and "Normalization failed" not in told, told
