"""Unmodified programs that hang under `staging-tf1 run --stall-secs`, and the report on each; and some that do not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import QUIET, ForkServer
from legacy_support import Run
from load import slowdown
from stalls import LIMIT_SECS

# Longer than any run of these programs that ends.
SECS = 0.5 * slowdown()


@pytest.fixture(scope="module")
def server(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Run programs as `staging-tf1 run --stall-secs SECS PROGRAM` does."""
    address, cwd = shared_folder / "stall_server", tmp_path_factory.mktemp("elsewhere")
    server = ForkServer(address, cwd, "-m", "staging_tf1", "run", "--stall-secs", str(SECS))
    yield server
    server.close()


def report_on(server: ForkServer, folder: Path, text: str) -> str:
    """Return the report on a program that hangs, without its digits of time."""
    program = folder / "old.py"
    program.write_text(f"import tensorflow as tf\n{text}")
    with server.start(program, env=QUIET, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        assert running.stderr is not None
        seen: list[str] = []
        try:
            for line in running.stderr:
                seen.append(line)
                if line.startswith("Most likely: "):
                    return "".join(seen[-2:])
        finally:
            running.kill()
    raise AssertionError("".join(seen))


INIT = "sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])"

# Programs, from their second line on; the line that waits; what is said of it; the fix. tests/watch has more causes.
HANGING = {
    "a forgotten start_queue_runners": (
        f"""
names = tf.train.string_input_producer(["a", "b", "c"])
batch = tf.train.batch([names.dequeue()], 2)
with tf.Session() as sess:
    {INIT}
    print(sess.run(batch))
""",
        "old.py:7",
        "queue 'batch/fifo_queue' (made at old.py:4) is empty, and its QueueRunner was never started in this session",
        "Call tf.train.start_queue_runners(sess=sess, coord=coord) after",
    ),
    "a runner that has died": (
        f"""
names = tf.train.string_input_producer(["nowhere"])
_, record = tf.TFRecordReader().read(names)
batch = tf.train.batch([record], 2)
with tf.Session() as sess:
    {INIT}
    tf.train.start_queue_runners(sess)
    print(sess.run(batch))
""",
        "old.py:9",
        "the thread that fed queue 'batch/fifo_queue' (made at old.py:5) has died: NotFoundError: ",
        "Fix that exception",
    ),
    "a file without records": (
        f"""
open("empty.tfrecord", "w").close()
names = tf.train.string_input_producer(["empty.tfrecord"])
_, record = tf.TFRecordReader().read(names)
batch = tf.train.batch([record], 2)
with tf.Session() as sess:
    {INIT}
    tf.train.start_queue_runners(sess)
    print(sess.run(batch))
""",
        "old.py:10",
        "queue 'batch/fifo_queue' (made at old.py:6) is empty, because what fills it waits, too: reader "
        "'TFRecordReaderV2' gets the names of files from queue 'input_producer' (made at old.py:4), and delivers no "
        "records of them",
        "Look at these files: a TFRecord file without records has 0 bytes",
    ),
    "an initial value from a queue, in a MonitoredSession": (
        """
names = tf.train.string_input_producer(["a", "b"])
first = tf.Variable(names.dequeue(), name="first")
with tf.train.MonitoredTrainingSession() as sess:
    print(sess.run(first))
""",
        "old.py:5",
        "queue 'input_producer' (made at old.py:3) is empty, and this run initializes the variables: a "
        "MonitoredSession starts the queue runners after that",
        "create the variable with a constant, and assign the value in a hook, in after_create_session(session, coord)",
    ),
    "num_epochs without local variables": (
        """
names = tf.train.string_input_producer(["a", "b"], num_epochs=1)
batch = tf.train.batch([names.dequeue()], 2)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    tf.train.start_queue_runners(sess)
    print(sess.run(batch))
""",
        "old.py:8",
        "queue 'batch/fifo_queue' (made at old.py:4) is empty, because what fills it waits, too: the thread that fed "
        "queue 'input_producer' (made at old.py:3) has died: FailedPreconditionError: ",
        "tf.local_variables_initializer() before the threads start; num_epochs= counts in a local variable",
    ),
    "uninitialized variables in a thread": (
        """
import threading
weight = tf.Variable(1.0)
numbers = tf.FIFOQueue(4, tf.float32, [], name="numbers")
enqueue, take = numbers.enqueue(weight * 2.0), numbers.dequeue()
sess = tf.Session()
threading.Thread(target=sess.run, args=(enqueue,), name="reader").start()
print(sess.run(take))
""",
        "old.py:9",
        "the thread that fed queue 'numbers' (made at old.py:5) has died: FailedPreconditionError: ",
        "(in thread 'reader'). Run tf.global_variables_initializer()",
    ),
    "an enqueue at capacity": (
        """
numbers = tf.FIFOQueue(2, tf.int32, [], name="numbers")
enqueue, take = numbers.enqueue(7), numbers.dequeue()
with tf.Session() as sess:
    for _ in range(3):
        sess.run(enqueue)
""",
        "old.py:7",
        "queue 'numbers' (made at old.py:3) is full (2 of 2), and this run puts into it, but nothing takes elements ",
        "Dequeue in another thread or between the puts, or give it a larger capacity",
    ),
    "a barrier": (
        """
from tensorflow.python.ops import data_flow_ops
pairs = data_flow_ops.Barrier([tf.int32, tf.int32], [[], []], name="pairs")
insert, take = pairs.insert_many(0, ["a", "b"], [1, 2]), pairs.take_many(2)
with tf.Session() as sess:
    sess.run(insert)
    print(sess.run(take))
""",
        "old.py:8",
        "barrier 'pairs' (made at old.py:4) holds 0 complete elements, and the step takes 2; 2 more lack a component",
        "Insert each component for every key (insert_many), or take fewer elements",
    ),
    "make_callable": (
        """
numbers = tf.FIFOQueue(2, tf.int32, [], name="numbers")
step = tf.Session().make_callable(numbers.dequeue())
print(step())
""",
        "old.py:5",
        "queue 'numbers' (made at old.py:3) is empty, and the graph has no op that puts into it",
        "Build its enqueue()",
    ),
    "partial_run": (
        """
a = tf.placeholder(tf.int32, [])
numbers = tf.FIFOQueue(2, tf.int32, [], name="numbers")
total = a + numbers.dequeue()
sess = tf.Session()
handle = sess.partial_run_setup([total], [a])
print(sess.partial_run(handle, total, {a: 1}))
""",
        "old.py:8",
        "queue 'numbers' (made at old.py:4) is empty, and the graph has no op that puts into it",
        "Build its enqueue()",
    ),
    "a MonitoredSession": (
        """
numbers = tf.FIFOQueue(2, tf.int32, [], name="numbers")
enqueue, take = numbers.enqueue(7), numbers.dequeue()
with tf.train.MonitoredTrainingSession() as sess:
    print(sess.run(take))
""",
        "old.py:6",
        "queue 'numbers' (made at old.py:3) is empty, and no thread is putting into it",
        "Start it",
    ),
    "a session on a server": (
        """
server = tf.train.Server.create_local_server()
numbers = tf.FIFOQueue(2, tf.int32, [], shared_name="numbers", name="numbers")
enqueue, take = numbers.enqueue(7), numbers.dequeue()
with tf.Session(server.target) as sess:
    print(sess.run(take))
""",
        "old.py:7",
        "queue 'numbers' (made at old.py:4) is empty, and no thread of this process is putting into it",
        "If another process fills it, look at its log; if this one should, start the thread",
    ),
    "the second of several sessions in threads": (
        """
import threading
numbers = tf.FIFOQueue(2, tf.int32, [], name="numbers")
enqueue, take = numbers.enqueue(7), numbers.dequeue()
first, second = tf.Session(), tf.Session()
first.run(enqueue)
def use(sess):
    print(sess.run(take))
threads = [threading.Thread(target=use, args=(sess,)) for sess in (first, second)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
        "old.py:9",
        "queue 'numbers' (made at old.py:4) is empty, and no thread is putting into it",
        "Start it",
    ),
    "a get that holds the only thread for ops": (
        """
import threading, time
area = tf.contrib.staging.StagingArea([tf.int32], [[]])
put, get = area.put([7]), area.get()
config = tf.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
with tf.Session(config=config) as sess:
    threading.Timer(0.2, lambda: sess.run(put)).start()
    print(sess.run(get))
""",
        "old.py:9",
        "(made at old.py:4) is empty, and the get that waits for it holds the only thread for ops",
        "tf.ConfigProto(inter_op_parallelism_threads=2)",
    ),
    "an Estimator": (
        """
def read():
    numbers = tf.FIFOQueue(2, tf.float32, [4, 1], name="numbers")
    numbers.enqueue(tf.ones([4, 1]))
    return {"x": numbers.dequeue()}, tf.ones([4, 1])
estimator = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")])
estimator.train(read, steps=2)
""",
        "old.py:8",
        "(made at old.py:4) is empty, and no thread is putting into it",
        "Start it",
    ),
}


@pytest.mark.parametrize("name", HANGING)
@pytest.mark.matrix_cases(r"(?!(a forgotten start_queue_runners|a barrier)$).*")
def test_a_program_that_hangs_explains_itself(name: str, server: ForkServer, tmp_path: Path) -> None:
    text, line, cause, cure = HANGING[name]
    report = report_on(server, tmp_path, text)
    first, likely = report.splitlines()
    assert re.match(rf"staging-tf1 run: A step has not returned for \d+\.\d s, at {re.escape(line)} in ", first), report
    assert cause in likely and cure in likely, report


# What takes longer than SECS, and is no stall: a wait in the graph takes three times as long.
SLOW = {
    "a step that computes": """
import time
slow = tf.py_func(lambda: time.sleep({wait}) or 1.0, [], tf.float64)
with tf.Session() as sess:
    print(sess.run(slow))
""",
    "a queue that fills": """
import threading, time
numbers = tf.RandomShuffleQueue(2000, 1000, tf.int32, [], name="numbers")
enqueue, take = numbers.enqueue_many([[1] * 40]), numbers.dequeue()
sess = tf.Session()
def fill():
    for _ in range(30):
        time.sleep({wait} / 30)
        sess.run(enqueue)
thread = threading.Thread(target=fill)
thread.start()
print(sess.run(take))
thread.join()
""",
    "a feed thread that waits for room": """
import threading, time
numbers = tf.FIFOQueue(1, tf.int32, [], name="numbers")
enqueue, take = numbers.enqueue(7), numbers.dequeue()
sess = tf.Session()
thread = threading.Thread(target=lambda: [sess.run(enqueue) for _ in range(4)])
thread.start()
for _ in range(4):
    time.sleep({wait} / 2)
    print(sess.run(take))
thread.join()
""",
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.matrix_cases(r"(?!(a step that computes)$).*")
def test_a_slow_program_is_left_alone(name: str, server: ForkServer, tmp_path: Path) -> None:
    program = tmp_path / "old.py"
    program.write_text("import tensorflow as tf\n" + SLOW[name].format(wait=3 * SECS))
    ran = server.run(program, env=QUIET, timeout=LIMIT_SECS)
    assert ran.returncode == 0 and ran.stdout, ran.stderr
    assert "staging-tf1 run:" not in ran.stderr


def test_a_graph_that_does_not_stall_stays_as_it_is(server: ForkServer, tmp_path: Path) -> None:
    program = tmp_path / "old.py"
    program.write_text(
        "import tensorflow as tf\n"
        "queue = tf.FIFOQueue(2, tf.int32, [])\n"
        "before = len(tf.get_default_graph().get_operations())\n"
        "with tf.Session() as sess:\n"
        "    sess.run(queue.enqueue(7))\n"
        "    print(sess.run(queue.size()), len(tf.get_default_graph().get_operations()) - before)\n"
    )
    # The two ops that the program itself makes, and the value.
    assert server.run(program, env=QUIET).stdout == "1 3\n"


@pytest.mark.parametrize("given", ["-1", "nan", "soon"])
def test_seconds_that_are_none(given: str, staging_run: Run) -> None:
    ran = staging_run("--stall-secs", given, "old.py")
    assert ran.returncode == 2
    assert f"got '{given}', expected a number of seconds from 0 to 1000000000" in ran.stderr
