"""A child that is forked while a session runs: it must raise ForkedError or be quiet, end soon, and harm nobody."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import tensorflow.compat.v1 as tf
from soak.invariants import is_the_sources
from soak.outcome import Outcome, UserError
from soak.plan import Plan
from soak.ways import Way

import staging_tf1 as staging
from staging_tf1.errors import ForkedError

# A child that takes longer hangs: it says where, and ends. Less than a step may wait for a source, and its child.
CHILD_SECS = 25
# Sessions of TensorFlow's own, in which some uses know of no fork.
_TENSORFLOWS_OWN = ("hook", "plain")


class Forks:
    """Forks once in each session, and judges the child at the session's end.

    Attributes:
      way: what the child may use; None before the session is open.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._fork = plan, plan.fork
        self.way: Way | None = None
        self._outcome: Outcome | None = None
        self._folder: str | None = None
        self._lock = threading.Lock()
        self._parent = os.getpid()
        # The child, the end of the pipe that it writes to, and what it has written.
        self._child = self._reader = 0
        self._said = b""
        # In the child.
        self._writer = 0
        self._batches_before = 0
        self._of_this_thread = threading.local()

    @contextmanager
    def judged(self, outcome: Outcome, folder: str | None) -> Iterator[None]:
        """Around a session: the parent notes in `outcome` what its child did wrong; no child leaves it."""
        self._outcome, self._folder, self.way, self._child = outcome, folder, None, 0
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            if self._is_parent():
                raise
        finally:
            if not self._is_parent():
                self._end(error)
            self.way = None
            if self._child:
                outcome.child_fault = outcome.child_fault or self._fault()

    def in_loop(self, number: int) -> bool:
        """Called before each step; True in a child that is to leave the loop."""
        return self._fork is not None and (self._fork.where, self._fork.at) == ("loop", number) and self._forked()

    def in_source(self, index: int) -> None:
        """Called with each good batch, in whatever thread reads it."""
        # Before the session is open there is nothing to use.
        if self._fork is not None and self._fork.where == "source" and index >= self._fork.at and self.way is not None:
            self._forked()

    def _is_parent(self) -> bool:
        return os.getpid() == self._parent

    def _forked(self) -> bool:
        """Fork, unless the session has done so; return whether this is a child that is to leave the loop."""
        assert self._fork is not None
        with self._lock:
            if self._child:
                return False
            files = self._files()
            self._reader, writer = os.pipe()
            # Otherwise the child would have it to write, too.
            sys.stdout.flush()
            sys.stderr.flush()
            self._child = os.fork()
            if self._child:
                os.close(writer)
                self._said, self._outcome_now.forked = b"", True
                if self._fork.awaited:
                    self._listen()
                    # While a source is read, the loop's thread may save a checkpoint.
                    if self._fork.where == "loop" and self._files() != files:
                        self._outcome_now.child_fault = "it changed the parent's files"
                return False
        return self._in_child(writer)

    @property
    def _outcome_now(self) -> Outcome:
        assert self._outcome is not None
        return self._outcome

    # In the child.

    def _in_child(self, writer: int) -> bool:
        assert self._fork is not None
        self._writer = writer
        self._batches_before = self._batches()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, file=writer, chain=True)
        signal.alarm(CHILD_SECS)
        # For a feed thread that goes on. The process would end with it, its only one, but Python has forgotten the
        # thread by then, and h5py, which asks Python as the process ends, aborts.
        threading.excepthook = lambda ended: self._judge(ended.exc_value)
        self._of_this_thread.ends = _AtItsEnd(lambda: self._end(None))
        for use in self._fork.uses:
            self._try(use)
        if self._fork.leaves == "at once":
            self._end(None)
        if self._fork.leaves == "exception":
            raise UserError("the child's own")
        if self._fork.leaves == "SystemExit":
            sys.exit(0)
        return self._fork.leaves == "break"

    def _try(self, use: str) -> None:
        try:
            self._calls()[use]()
        except ForkedError:
            return
        except BaseException as error:
            # By the time of the fork a feed thread may have failed, or the loop's thread have closed the session.
            known = isinstance(error, RuntimeError) or is_the_sources(self._plan, self._outcome_now, error)
            if not (known and self._plan.way in _TENSORFLOWS_OWN):
                self._wrong(f"{use} raised {type(error).__name__}: {error}")
        else:
            may_be_quiet = self._plan.way in _TENSORFLOWS_OWN and use in ("should_stop", "close")
            if use != "collect" and not may_be_quiet:
                self._wrong(f"{use} raised nothing")

    def _calls(self) -> dict[str, Callable[[], Any] | None]:
        assert self.way is not None
        way, towers = self.way, list(range(self._plan.towers))
        return {
            "step": lambda: way.take(towers, False, None),
            "should_stop": way.should_stop,
            "drain": way.drain,
            "stats": way.stats,
            "start": way.start,
            "close": way.close,
            "new": _new_session,
            "collect": gc.collect,
        }

    def _end(self, error: BaseException | None) -> NoReturn:
        """End the child, which `error` has left the session by."""
        self._judge(error)
        if self._fork is not None and self._fork.ends == "exit":
            ctypes.CDLL(None).exit(0)
        os._exit(0)

    def _judge(self, error: BaseException | None) -> None:
        fine = error is None or isinstance(error, (ForkedError, UserError, SystemExit))
        if not (fine or is_the_sources(self._plan, self._outcome_now, error)):
            self._wrong(f"it was left by {type(error).__name__}: {error}")
        if self._batches() != self._batches_before:
            self._wrong("it took a batch")

    def _batches(self) -> int:
        return sum(map(len, self._outcome_now.got))

    def _wrong(self, text: str) -> NoReturn:
        os.write(self._writer, text.encode())
        os._exit(1)

    # In the parent.

    def _listen(self) -> None:
        """Wait until the child has ended."""
        while part := os.read(self._reader, 4096):
            self._said += part

    def _fault(self) -> str:
        self._listen()
        os.close(self._reader)
        status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        if status or self._said:
            return f"status {status}, {self._said.decode(errors='replace')}"
        return self._event_fault()

    def _files(self) -> dict[str, bytes | None]:
        """What is in the parent's files; of event files, which a thread of its own writes, which ones there are."""
        paths = [path for path in Path(self._folder).rglob("*") if path.is_file()] if self._folder else []
        return {str(path): None if "tfevents" in path.name else path.read_bytes() for path in paths}

    def _event_fault(self) -> str:
        """What is wrong with the event files, which have each event once, and whole."""
        if self._folder is None:
            return ""
        tf.summary.FileWriterCache.get(self._folder).flush()
        for path in Path(self._folder).glob("*tfevents*"):
            try:
                events = Counter(event.SerializeToString() for event in tf.train.summary_iterator(str(path)))
            except tf.errors.DataLossError as error:
                return f"{path} is damaged: {error.message}"
            if max(events.values()) > 1:
                return f"{path} has events twice"
        return ""


class _AtItsEnd:
    """Kept by a thread alone, it calls `call` as the thread ends."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def _new_session() -> None:
    with tf.Graph().as_default():
        staging.StagingSession()
