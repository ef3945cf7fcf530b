"""Explains the stalls of a program that knows nothing of this package, and lets Ctrl-C end them.

Ctrl-C also ends what waits while one of our own sessions is created, as an initializer.

What does that, `watch/program_watchdog.py` and `watch/ending.py`, is imported with the first run that takes too long:
its import takes 0.4 s.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from staging_tf1._tf import is_closed, wrap_runs
from staging_tf1.background import Background
from staging_tf1.graph.state import is_watched
from staging_tf1.signals import InterruptWatcher, forget_replaced, in_main_thread, interruption
from staging_tf1.watch.views import Failure, Pending

_RUNS = "_staging_tf1_program_runs"


class _Runs:
    """The runs of one session. The session holds it, and it does not hold the session."""

    def __init__(self) -> None:
        self.pending: dict[int, Pending] = {}
        # The last one of each thread.
        self.failures: dict[int, Failure] = {}
        # Made when a run first takes too long, and when a signal first meets a run.
        self.watchdog: Any = None
        self.ender: Any = None

    def note(self, run: Pending, error: BaseException) -> None:
        """Note that a run has failed, which may have ended its thread."""
        thread = threading.current_thread()
        if thread is not threading.main_thread():
            from staging_tf1.watch.snapshot import first_line_of

            self.failures[run.ident] = Failure(thread, run._replace(fed=list(run.fed or ())), first_line_of(error))


class _Program:
    """The sessions of this process, and the thread that looks at them."""

    def __init__(self, secs: float, say: Callable[[str], None]) -> None:
        self._secs, self._say = secs, say
        self._sessions: dict[int, weakref.ref[Any]] = {}
        # A fork has no thread of its parent.
        self._watching_in = 0
        self._watcher = self._make_watcher()

    def _make_watcher(self) -> InterruptWatcher:
        return InterruptWatcher(self._interrupted, interrupted_run=self._interrupted_run)

    def around(self, session: Any, fetches: Any, feed_dict: Any, call: Callable[[], Any]) -> Any:
        runs: _Runs = session.__dict__.get(_RUNS) or self._meet(session)
        ident = threading.get_ident()
        run = runs.pending[ident] = Pending(ident, time.perf_counter(), fetches, feed_dict)
        try:
            return call()
        except Exception as error:
            runs.note(run, error)
            interrupted = interruption(error) or self._watcher.take_lost_interrupt(run)
            if interrupted is not None:
                raise interrupted from None
            raise
        except BaseException as interrupt:
            self._watcher.take_lost_interrupt(run)
            forget_replaced(interrupt)
            raise
        finally:
            runs.pending.pop(ident, None)

    def stop(self) -> None:
        """End what a signal has begun."""
        self._watcher.stop()
        for session in [ref() for ref in list(self._sessions.values())]:
            runs = None if session is None else session.__dict__.pop(_RUNS, None)
            if runs is not None and runs.ender is not None:
                runs.ender.stop()

    def _meet(self, session: Any) -> _Runs:
        runs = _Runs()
        setattr(session, _RUNS, runs)
        key = id(session)
        self._sessions[key] = weakref.ref(session, lambda _: self._sessions.pop(key, None))
        if self._watching_in != os.getpid():
            self._watching_in, self._watcher = os.getpid(), self._make_watcher()
            if self._secs:
                Background("staging:program", self._watch).start()
        if in_main_thread():
            self._watcher.start()
        return runs

    def _session_of_main_thread(self) -> Any | None:
        """Return the session whose run the main thread is in; None if it is in none, or our own session serves it."""
        ident = threading.main_thread().ident
        sessions = [ref() for ref in list(self._sessions.values())]
        served = [each for each in sessions if each is not None and not is_watched(each)]
        return next((session for session in served if ident in getattr(session, _RUNS).pending), None)

    def _interrupted_run(self) -> Pending | None:
        session = self._session_of_main_thread()
        return None if session is None else getattr(session, _RUNS).pending.get(threading.main_thread().ident)

    def _interrupted(self) -> None:
        session = self._session_of_main_thread()
        if session is None:
            return
        runs: _Runs = getattr(session, _RUNS)
        if runs.ender is None:
            from staging_tf1.watch.ending import RunEnder

            runs.ender = RunEnder(session, runs.pending, lambda: self._watchdog_of(session), say=self._say)
        runs.ender.arrived(self._watcher.number)

    def _watch(self) -> Iterator[float]:
        while True:
            # One bytecode copies it, because other threads write to it.
            yield min([self._secs, *map(self._safe_look, list(self._sessions.values()))])

    def _safe_look(self, ref: weakref.ref[Any]) -> float:
        try:
            return self._look(ref)
        except Exception as error:
            # The thread serves all sessions of the program.
            self._say(f"The watchdog could not look at a session: {type(error).__name__}: {error}")
            return self._secs

    def _look(self, ref: weakref.ref[Any]) -> float:
        """Look at one session. Return the seconds until the next look."""
        session = ref()
        # One of our own watchdogs serves a session whose steps are seen.
        if session is None or is_closed(session) or is_watched(session):
            return self._secs
        runs: _Runs = getattr(session, _RUNS)
        if runs.watchdog is None:
            began = min((run.began for run in list(runs.pending.values())), default=time.perf_counter())
            left = began + self._secs - time.perf_counter()
            if left > 0:
                return left
        return float(self._watchdog_of(session).look())

    def _watchdog_of(self, session: Any) -> Any:
        runs: _Runs = getattr(session, _RUNS)
        if runs.watchdog is None:
            from staging_tf1.watch.program_watchdog import ProgramWatchdog

            runs.watchdog = ProgramWatchdog(session, runs.pending, runs.failures, self._secs, self._say)
        return runs.watchdog


_program: _Program | None = None


def watch_program(secs: float, say: Callable[[str], None]) -> None:
    """Report each run of each session of this process that waits for longer than `secs` seconds; 0 is never.

    Ctrl-C ends a run of the main thread that waits. Sessions that this package serves have a watchdog of their own. A
    run that computes is not reported.

    Args:
      secs: how long is too long.
      say: called with the report, in a thread.
    """
    global _program
    _program = _Program(secs, say)
    wrap_runs(_program.around)
    # A thread that is in TensorFlow while Python ends aborts the process.
    atexit.register(_program.stop)


@contextlib.contextmanager
def ending_runs() -> Iterator[None]:
    """A context in which Ctrl-C ends a run of the main thread that waits, and names what it waits for.

    For the creation of a session, whose own runtime begins after its variables have values.
    """
    global _program
    if _program is not None or not in_main_thread():
        yield
        return
    _program = _Program(0, lambda line: logging.warning("%s", line))
    wrap_runs(_program.around)
    try:
        yield
    finally:
        wrap_runs(None)
        _program.stop()
        _program = None
