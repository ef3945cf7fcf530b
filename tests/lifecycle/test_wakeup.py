"""Sessions share the process's wake-up descriptor. Any thread may close them, in any order."""

from __future__ import annotations

from typing import Any

from forked import ForkServer

# Opens watchers or sessions and closes them in every order, each by the main thread or by another one, and sends
# real signals in between. Each line that it prints is a fault.
PRELUDE = """
import asyncio, itertools, os, signal, socket, sys, threading
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
from staging_tf1.signals import InterruptWatcher

signal.signal(signal.SIGINT, lambda number, frame: None)

def check(fact, *what):
    if not fact:
        print(*what, flush=True)

def wakeup_fd():
    now = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(now, warn_on_full_buffer=False)
    return now

def is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False

def within(elsewhere, call):
    if not elsewhere:
        return call()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

def watching_threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "staging:interrupt"]

class Watch:
    def __init__(self):
        self.told = threading.Event()
        self.watcher = InterruptWatcher(self.told.set)
        self.watcher.start()
"""

ORDERS = """
for count in (1, 2, 3):
    for order in itertools.permutations(range(count)):
        for elsewhere in itertools.product([False, True], repeat=count):
            for closed_first in range(count + 1):
                case = order, elsewhere, closed_first
                watches = [Watch() for _ in range(count)]
                ours = wakeup_fd()
                for number in order[:closed_first]:
                    within(elsewhere[number], watches[number].watcher.stop)
                os.kill(os.getpid(), signal.SIGINT)
                left = order[closed_first:]
                for number in left:
                    check(watches[number].told.wait(200), case, "was not told", number)
                for number in order[:closed_first]:
                    check(not watches[number].told.is_set(), case, "was told though it is closed", number)
                for number in left:
                    within(elsewhere[number], watches[number].watcher.stop)
                check(wakeup_fd() in (-1, ours) and (wakeup_fd() == -1 or is_open(ours)), case, "left", wakeup_fd())
                check(not watching_threads(), case, "left a thread")
                os.kill(os.getpid(), signal.SIGINT)
                watches[0].watcher.stop()
                check(wakeup_fd() == -1, case, "the main thread has not put it back:", wakeup_fd())
                lost = [watch.watcher.take_lost_interrupt() for watch in watches]
                check(not any(lost), case, "owes a KeyboardInterrupt")
"""

OTHERS = """
def received(reader):
    try:
        return reader.recv(100)
    except BlockingIOError:
        return b""

def theirs():
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    reader.settimeout(20)
    return reader, writer

interrupt = bytes([signal.SIGINT])
for closes_elsewhere in (False, True):
    reader, writer = theirs()
    signal.set_wakeup_fd(writer.fileno())
    first, second = Watch(), Watch()
    os.kill(os.getpid(), signal.SIGINT)
    check(first.told.wait(200) and second.told.wait(20), "not told beside an event loop")
    check(received(reader) == interrupt, "the loop that was there before was not told")
    for watch in (first, second):
        within(closes_elsewhere, watch.watcher.stop)
    os.kill(os.getpid(), signal.SIGINT)
    check(received(reader) == interrupt, "the loop was not told after the close", closes_elsewhere)
    first.watcher.stop()
    check(wakeup_fd() == writer.fileno(), "the loop's descriptor was not put back", closes_elsewhere)
    check(not watching_threads(), "left a thread beside a loop", closes_elsewhere)
    signal.set_wakeup_fd(-1)

    # One that is closed meanwhile; its number is then that of a file of the user's.
    signal.set_wakeup_fd(writer.fileno())
    watch, number = Watch(), writer.fileno()
    writer.close()
    path = sys.argv[1]
    users = os.open(path, os.O_CREAT | os.O_RDWR)
    if users != number:
        os.dup2(users, number)
        os.close(users)
    os.kill(os.getpid(), signal.SIGINT)
    check(watch.told.wait(200), "not told after the loop was closed")
    within(closes_elsewhere, watch.watcher.stop)
    watch.watcher.stop()
    check(os.path.getsize(path) == 0, "wrote into a file that has got the number of a closed loop")
    check(wakeup_fd() == -1, "a closed descriptor was put back", wakeup_fd())
    check(not watching_threads(), "left a thread beside a closed loop")
    os.close(number)

    # One that is set after ours, and is put back by its owner after we are closed.
    watch = Watch()
    reader, writer = theirs()
    ours = signal.set_wakeup_fd(writer.fileno())
    within(closes_elsewhere, watch.watcher.stop)
    watch.watcher.stop()
    check(wakeup_fd() == writer.fileno(), "clobbered a descriptor that was set after ours")
    os.kill(os.getpid(), signal.SIGINT)
    check(received(reader) == interrupt, "the later loop was not told")
    signal.set_wakeup_fd(ours)
    os.kill(os.getpid(), signal.SIGINT)
    again = Watch()
    check(not again.told.wait(0.05), "told of a signal from before its time")
    os.kill(os.getpid(), signal.SIGINT)
    check(again.told.wait(200), "not told after all that")
    again.watcher.stop()
    signal.set_wakeup_fd(-1)

async def loop():
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    watch = Watch()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(told.wait(), 20)
    check(watch.told.wait(200), "not told within asyncio")
    await asyncio.to_thread(watch.watcher.stop)
    told.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(told.wait(), 20)

asyncio.run(loop())
watch = Watch()
watch.watcher.stop()
check(wakeup_fd() == -1, "left the descriptor of a loop that is closed")
"""

SESSIONS = """
signal.signal(signal.SIGINT, signal.default_int_handler)

class Stuck:
    def __init__(self):
        self.waiting, self.let_go = threading.Event(), threading.Event()
    def __call__(self):
        yield np.arange(1)
        self.waiting.set()
        self.let_go.wait(60)

def interrupted(call, *arguments):
    try:
        call(*arguments)
    except KeyboardInterrupt:
        return True
    except tf.errors.OutOfRangeError:
        return False

for closes_elsewhere in (False, True):
    opened = []
    for _ in range(3):
        with tf.Graph().as_default():
            source = Stuck()
            x = staging.staged(staging.sources.GeneratorSource(source, spec=tf.TensorSpec([None], tf.int64)))
            session = staging.StagingSession(stop_grace_period_secs=20)
            session.run(x)
            opened.append((source, x, session))
    def interrupt():
        for source, _, _ in opened:
            source.waiting.wait(60)
        while not opened[1][2]._hook.runtime.steps.timed.pending:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    killer = threading.Thread(target=interrupt)
    killer.start()
    _, x, session = opened[1]
    check(interrupted(session.run, x), "the step that waited was not interrupted")
    killer.join()
    # The others' feeding was stopped, too: what they raise is the interrupt, not the end of their data, and once.
    for index in (0, 2):
        _, x, session = opened[index]
        check(interrupted(session.run, x), "took the interrupt for the end of the data", index)
        check(not interrupted(session.run, x), "raised one interrupt twice", index)
    for source, _, session in opened:
        source.let_go.set()
        within(closes_elsewhere, session.close)
    check(not watching_threads(), "left a thread")
# Whoever closed was another thread: the next session of the main thread puts things in order.
with tf.Graph().as_default(), staging.StagingSession():
    pass
check(wakeup_fd() == -1, "left", wakeup_fd())
"""


def silent(done: Any) -> None:
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr and "Traceback" not in done.stderr, done.stderr


# The garbage collector may close a session in any thread, also in the one that another thread starts or joins under its
# lock.
COLLECTED = """
from staging_tf1.signals import _signals

begun, joining, other = threading.Event(), threading.Event(), InterruptWatcher(lambda: None)

def leave(watcher):
    # As `stop` does, without its wait for the call that is under way.
    watcher.is_watching = False
    _signals.remove(watcher)

def close_other_while_joined():
    begun.set()
    while not _signals._thread.stopping.is_set:
        pass
    other.stop()
    joining.set()

first = InterruptWatcher(close_other_while_joined)
first.start()
other.start()
leave(other)
os.kill(os.getpid(), signal.SIGINT)
begun.wait(10)
leave(first)
check(joining.wait(10), "the thread that is joined waits for the lock")

ident = threading.Thread._set_ident
threading.Thread._set_ident = lambda thread: (ident(thread), thread.name == "staging:interrupt" and other.stop())[0]
last = InterruptWatcher(joining.clear)
last.start()
os.kill(os.getpid(), signal.SIGINT)
last.stop()
check(not joining.is_set(), "the signal was not seen")
check(not watching_threads(), "a thread is left")
"""

# And at any line of another close, in the same thread.
NESTED = """
signal.alarm(100)

def closed_at(which):
    left, first, other = which, Watch(), Watch()

    def trace(frame, event, _):
        nonlocal left
        if event == "line" and left and frame.f_code.co_filename != __file__:
            left -= 1
            if not left:
                other.watcher.stop()
        return trace

    sys.settrace(trace)
    first.watcher.stop()
    sys.settrace(None)
    other.watcher.stop()
    check(not watching_threads(), "left a thread when it was closed at line", which)
    return not left

__file__, which = (lambda: None).__code__.co_filename, 1
while closed_at(which):
    which += 1
check(which > 20, "has", which, "lines")
"""


def test_any_number_is_closed_in_any_order_by_any_thread(fork_server: ForkServer) -> None:
    silent(fork_server.run("-W", "ignore", "-c", PRELUDE + ORDERS))


def test_the_descriptor_of_somebody_else(fork_server: ForkServer, tmp_path: Any) -> None:
    silent(fork_server.run("-W", "ignore", "-c", PRELUDE + OTHERS, tmp_path / "file"))


def test_sessions_closed_in_the_order_in_which_they_were_opened(fork_server: ForkServer) -> None:
    silent(fork_server.run("-W", "ignore", "-c", PRELUDE + SESSIONS, whole_end=True))


def test_a_session_that_is_closed_in_the_thread_itself_waits_for_nobody(fork_server: ForkServer) -> None:
    silent(fork_server.run("-W", "ignore", "-c", PRELUDE + COLLECTED))


def test_a_session_that_is_closed_while_another_one_is_waits_for_no_lock(fork_server: ForkServer) -> None:
    silent(fork_server.run("-W", "ignore", "-c", PRELUDE + NESTED))
