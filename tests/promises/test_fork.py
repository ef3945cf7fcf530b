"""A process that is forked from one with sessions: whatever it does with ours raises at once, and harms nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forked import ForkServer
from slow import with_slow

pytestmark = pytest.mark.timeout(900)

# `in_child` forks; the child must be done within its time, and says what it raised. What it prints must be expected.
PRELUDE = """
import gc, os, signal, sys, threading, traceback
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
from staging_tf1.sources import ArraySource

tf.disable_v2_behavior()
folder, with_slow = sys.argv[1], sys.argv[2] == "all"
if not with_slow:
    # To optimize a graph takes nearly half of the time of its session, and changes nothing here.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
# How much higher the ids of the next step are.
stride = 1

def source(count=100):
    return ArraySource(np.arange(count), batch_size=1, epochs=1)

def report(call):
    try:
        value = call()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return f"returned {value!r}"

def in_child(call, exits=False, spelled=lambda status, said: said):
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writer)
        said = open(reader).read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return spelled(status, said) if status == 0 else f"ended by {status}: {said}"
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)
    said = report(call)
    os.write(writer, said.encode())
    if exits:
        # As the interpreter ends, with everything that it frees on the way.
        raise SystemExit(0)
    os._exit(0)

def in_one_child(calls):
    # What each of them raises, if one child makes all calls.
    said = in_child(lambda: [report(call) for call in calls])
    assert said.startswith("returned ["), said
    return eval(said.removeprefix("returned "))

def raises(said):
    assert said.startswith("ForkedError: "), said
    assert "threads do not survive a fork" in said and "multiprocessing.get_context('spawn')" in said, said

def files():
    return {
        name: open(os.path.join(root, name), "rb").read() for root, _, names in os.walk(folder) for name in names
    }
"""

PARENTS = {
    "session": """
x = staging.staged(source(), num_threads=2)
sess = staging.StagingSession()
step, run = sess.make_callable(x), lambda: sess.run(x)
ways = dict(
    run=run, callable=step, make_callable=lambda: sess.make_callable(x), should_stop=sess.should_stop,
    close=sess.close, drain=sess.drain, stats=sess.stats, graph=lambda: sess.graph,
    step_fn=lambda: sess.run_step_fn(lambda context: context.session.run(x)),
)
finish = sess.close
""",
    "lockstep": """
x = staging.staged(source(), lockstep=True)
sess = staging.StagingSession()
step, run = sess.make_callable(x), lambda: sess.run(x)
ways = dict(run=run, callable=step, close=sess.close)
finish = sess.close
""",
    "hook": """
stride = 2
x = staging.staged(source(), devices=["/cpu:0"] * 2)
hook = staging.StagingHook()
sess = tf.train.MonitoredTrainingSession(hooks=[hook])
run = lambda: sess.run(x)
ways = dict(run=run, drain=hook.drain, stats=hook.stats, raw=lambda: hook.session.run(x))
def finish():
    # MonitoredSession calls it as the session ends. The child has nothing to end, and the parent is fed on.
    assert in_child(hook.stop) == "returned None"
    run()
    sess.close()
""",
    "start": """
x = staging.staged(source())
sess, coord = tf.Session(), tf.train.Coordinator()
threads = staging.start(sess, coord)
run = lambda: sess.run(x)
ways = dict(run=run, start=lambda: staging.start(sess, coord), runners=lambda: tf.train.start_queue_runners(sess))
def finish():
    coord.request_stop()
    coord.join(threads)
    sess.close()
""",
    "runner": """
runner = staging.CustomRunner(source(), queue="fifo")
x = runner.get_inputs()
sess, coord = tf.Session(), tf.train.Coordinator()
run = lambda: sess.run(x)
ways = dict(run=run, threads=lambda: runner.start_threads(sess, coord))
threads = runner.start_threads(sess, coord)
def finish():
    coord.request_stop()
    coord.join(threads)
    sess.close()
""",
    "area": """
stride = 0
area = staging.StagingArea([tf.int64])
put, x = area.put([tf.constant(1, tf.int64)]), area.get()
sess = tf.Session()
def run():
    sess.run(put)
    return sess.run(x)
ways = dict(run=run)
finish = sess.close
""",
}

WAYS = """
run()
calls = [*ways.values()]
for way, said in zip(ways, [in_child(call) for call in calls] if with_slow else in_one_child(calls)):
    print(way, flush=True)
    raises(said)

def again():
    with tf.Graph().as_default():
        y = staging.staged(source())
        with staging.StagingSession() as other:
            return other.run(y)

def again_by_hand():
    with tf.Graph().as_default(), tf.Session() as other:
        staging.staged(source())
        staging.start(other)

def grandchild():
    return in_child(run)

for new in (again, again_by_hand, grandchild):
    print(new, flush=True)
    said = in_child(new)
    raises(said.removeprefix('returned "').removeprefix("returned '"))

def collected():
    global sess, ways, run
    sess = ways = run = None
    gc.collect()

before = run()
said = in_child(collected)
assert said == "returned None", said
said = in_child(collected, exits=True)
assert said == "returned None", said
said = in_child(lambda: None, exits=True)
assert said == "returned None", said
after = run()
assert np.array_equal(after, np.array(before) + stride), (before, after)
finish()
# Forked after the end, too: the pools are the process's, not the session's.
raises(in_child(again))
"""


def run(fork_server: ForkServer, program: str, folder: Path, *words: str) -> Any:
    command = ("-W", "ignore", "-c", program, folder, "all" if with_slow() else "some", *words)
    return fork_server.run(*command, timeout=500, whole_end=True)


def succeeds(done: Any) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr and "never closed" not in done.stderr, done.stderr


PER_SESSION = "config=tf.ConfigProto(use_per_session_threads=True)"
# To free a session that has threads of its own joins them.
PARENTS["session with threads of its own"] = PARENTS["session"].replace("Session()", f"Session({PER_SESSION})")
PARENTS["start with threads of its own"] = PARENTS["start"].replace("tf.Session()", f"tf.Session({PER_SESSION})")


# The same without threads of their own, and by `start`.
@pytest.mark.slow_cases("session|start.*")
@pytest.mark.parametrize("parent", PARENTS)
def test_the_child_of_a_process_with_sessions(fork_server: ForkServer, tmp_path: Path, parent: str) -> None:
    succeeds(run(fork_server, PRELUDE + PARENTS[parent] + WAYS, tmp_path))


UNSTARTED = """
# To free a session that has threads of its own joins them.
options = dict(checkpoint_dir=folder, config=tf.ConfigProto(use_per_session_threads=True))
x, step = staging.staged(source()), tf.train.get_or_create_global_step()
nothing = tf.no_op()
with staging.StagingSession(**options) as sess:
    sess.run(x)
os.truncate(tf.train.latest_checkpoint(folder) + ".index", 3)
gc.disable()
# Its tf.Session has been made, and nobody has got it.
assert report(lambda: staging.StagingSession(**options)).startswith("CheckpointError")
others = tf.Session(config=options["config"])
others.run(nothing)

def collected():
    global others
    others = None
    gc.collect()

for exits in (False, True):
    said = in_child(collected, exits)
    assert said == "returned None", said
"""


def test_the_child_frees_no_session_that_was_never_started(fork_server: ForkServer, tmp_path: Path) -> None:
    succeeds(run(fork_server, PRELUDE + UNSTARTED, tmp_path))


FAILED = """
def breaks(batch):
    if batch[0] == 1:
        raise ValueError("broken")
    return batch

x = staging.staged(ArraySource(np.arange(100), batch_size=1, epochs=1, transform=breaks))
sess = staging.StagingSession()
feeding = [thread for thread in threading.enumerate() if thread.name == "feed:staged:0"]
for thread in feeding:
    thread.join()
for call in (lambda: sess.run(x), lambda: sess.run_step_fn(lambda context: context.session.run(x))):
    raises(in_child(call))
assert report(lambda: [sess.run(x), sess.run(x)]) == "ValueError: broken"
report(sess.close)
"""


def test_the_child_of_a_process_whose_source_has_failed(fork_server: ForkServer, tmp_path: Path) -> None:
    succeeds(run(fork_server, PRELUDE + FAILED, tmp_path))


BLOCK = """
x = staging.staged(source())
tf.summary.scalar("x", tf.reduce_sum(x))
step = tf.train.get_or_create_global_step()
train = tf.group(x, step.assign_add(1))
options = dict(checkpoint_dir=folder, save_summaries_steps=1, save_checkpoint_steps=3, log_step_count_steps=1)
hook = staging.StagingHook()
sess = (
    staging.StagingSession(hooks=[staging.StagingSummaryHook(output_dir=folder)], **options)
    if sys.argv[3] == "session"
    else tf.train.MonitoredTrainingSession(hooks=[hook, staging.StagingSummaryHook(output_dir=folder)], **options)
)
for _ in range(4):
    sess.run(train)

def leave(end):
    with sess:
        end()
    return "left"

def leave_by_exit():
    with sess:
        sys.exit(0)

before = files()
assert in_child(lambda: leave(lambda: sess.run(train))).startswith("ForkedError"), "a step in the block"
assert files() == before, "a step in the child"
for exits in (False, True):
    said = in_child(lambda: leave(lambda: None), exits)
    # MonitoredSession runs its hooks' end(), and the first run in there raises.
    assert said == "returned 'left'" or sys.argv[3] == "hook" and said.startswith("ForkedError"), said
    assert files() == before, ("leaving the block", exits)
    said = in_child(leave_by_exit, exits)
    assert said == "SystemExit: 0", said
    assert files() == before, ("leaving it by SystemExit", exits)
    assert in_child(lambda: None, exits) == "returned None"
    assert files() == before, ("not leaving it", exits)
sess.run(train)
sess.close()
assert files() != before and tf.train.latest_checkpoint(folder).endswith("-5")
assert sum(1 for path in files() if "tfevents" in path) == 1
events = [event for name in files() if "tfevents" in name
    for event in tf.train.summary_iterator(os.path.join(folder, name))]
steps = [event.step for event in events if any(value.tag == "x" for value in event.summary.value)]
assert steps == [1, 2, 3, 4, 5], steps
"""


@pytest.mark.parametrize("way", ["session", "hook"])
def test_leaving_the_block_in_the_child_writes_and_ends_nothing(
    fork_server: ForkServer, tmp_path: Path, way: str
) -> None:
    succeeds(run(fork_server, PRELUDE + BLOCK, tmp_path, way))


UNHARMED = """
import multiprocessing, subprocess
from concurrent.futures import ProcessPoolExecutor

def square(numbers):
    return numbers * numbers

def read(number):
    return source().batch(number).tolist()

# No session yet: a child may do as it likes.
def trains():
    with tf.Graph().as_default():
        x = staging.staged(source(3))
        with staging.StagingSession() as sess:
            return [int(sess.run(x)[0]) for _ in range(3)]

assert in_child(trains) == "returned [0, 1, 2]"
assert in_child(lambda: in_child(trains)) == "returned 'returned [0, 1, 2]'"
fork = multiprocessing.get_context("fork")

# SIGTERM, by which a pool ends its workers, is handled in this program, and so in its children.
ended = []
signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number) if os.getpid() == parent else os._exit(0))
parent = os.getpid()

def subprocesses(batch):
    assert subprocess.run(["true"], check=True).returncode == 0
    assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, preexec_fn=os.getpid).stdout
    return batch

def forks(batch):
    pid = os.fork()
    if not pid:
        os._exit(int(batch[0]) % 100)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == int(batch[0]) % 100
    return batch

def ended_by_a_signal():
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        # What arrives before Python has set up the child is lost.
        os.write(to_parent, b"ready")
        # signal.pause() would wait forever for a signal that arrives just before it.
        os.read(from_parent, 4)
        os._exit(1)
    os.read(from_child, 5)
    os.kill(pid, signal.SIGTERM)
    os.write(to_child, b"sent")
    for end in (from_child, to_parent, from_parent, to_child):
        os.close(end)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def interrupted(batch):
    # Python 3.13.0 loses some signals in a child that a thread has forked, without this package, too.
    may_miss = sys.version_info >= (3, 13) and threading.current_thread() is not threading.main_thread()
    assert ended_by_a_signal() in ([0, 1] if may_miss else [0])
    return batch

def forgets_to_exit(batch):
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(writer, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        # Once the feed thread that has forked is dead, nothing is left to do here.
        threading.excepthook = lambda failed: (threading.__excepthook__(failed), os._exit(0))
        return batch
    os.close(writer)
    said = open(reader).read()
    os.waitpid(pid, 0)
    assert "Traceback" in said and "ForkedError: " in said, said
    return batch

def pools(batch):
    # A worker that handles SIGTERM in Python may miss it as it begins to wait for work. Until then it is ours.
    with fork.Pool(2, initializer=signal.signal, initargs=(signal.SIGTERM, signal.SIG_DFL)) as pool:
        return pool.map(square, [batch])[0]

def train(source, **options):
    with tf.Graph().as_default():
        x = staging.staged(source, **options)
        got = []
        with staging.StagingSession(stall_secs=120) as sess:
            while not sess.should_stop():
                got.append(int(sess.run(x)[0]))
                if len(got) == 2:
                    with ProcessPoolExecutor(1, mp_context=fork) as executor:
                        assert executor.submit(read, 7).result(60) == [7]
        return got

count = 3
for transform in (subprocesses, forks, interrupted, forgets_to_exit, pools):
    for options in (dict(num_threads=2), dict(lockstep=True)):
        if options.get("lockstep") and not with_slow and transform is not interrupted:
            continue  # this one finds something else in the main thread
        if transform is forgets_to_exit and options.get("lockstep"):
            continue  # the loop itself reads, and the child goes on in there
        if transform is pools and "num_threads" in options:
            options = dict(num_threads=1)  # two pools that threads make at once may wait for each other's workers
        print(transform, options, flush=True)
        mapped = ArraySource(np.arange(count), batch_size=1, epochs=1, transform=transform)
        wanted = [n * n if transform is pools else n for n in range(count)]
        got = train(mapped, **options)
        assert got == wanted, (transform, options, got)

# With a seed and one thread, the feeder of a shuffle queue waits for its taker before it puts.
with tf.Graph().as_default():
    mapped = ArraySource(np.arange(count), batch_size=1, epochs=1, transform=forgets_to_exit)
    x = staging.CustomRunner(mapped, batch_size=1, capacity=2, min_after_dequeue=1, seed=1).get_inputs()
    with staging.StagingSession() as sess:
        got = []
        while not sess.should_stop():
            got.append(int(sess.run(x)[0]))
        assert sorted(got) == list(range(count)), got

assert not ended, "a signal for a child reached the parent"
assert in_child(lambda: source().batch(5).tolist()) == "returned [5]"
"""


def test_forks_that_leave_sessions_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    succeeds(run(fork_server, PRELUDE + UNHARMED, tmp_path))
