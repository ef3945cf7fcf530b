"""`RunEnder`: ends the run that Ctrl-C or SIGTERM meets in the main thread, and says what it waits for."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from staging_tf1.background import Background
from staging_tf1.signals import at_prompt, raised_for
from staging_tf1.watch.stall import Watchdog
from staging_tf1.watch.views import Pending

# A run that has ended by then, as most do when their feed threads are stopped, is not mentioned.
_FIRST_LOOK_SECS = 0.5
# One op of the run may wait for the other: after each of these times, what still waits is woken again.
_WAKE_SECS = (0.05, 0.1, 0.2, 0.2)
_CLOSE_SECS = 0.5
# On a loaded machine, its last call of TensorFlow takes a while.
_STOP_SECS = 5.0
# A step that computes ends by itself.
_COMPUTES_SECS = 1.0
# A wrapper may send a signal twice: an earlier second one is the same.
_SECOND_SECS = 1.0


class RunEnder:
    """Ends the run of one session that a signal meets in the main thread.

    Python raises the KeyboardInterrupt when the run returns. A run that waits for an area, a queue, a barrier or an
    accumulator is made to return. Nothing ends a Python function, and a step that computes ends by itself: what it does
    is said, and a second signal ends the process.

    Args:
      pending: its runs in progress, by thread.
      watchdog: returns what can explain them.
      stop_feeding: called before the run is woken.
      say: called with each line.
    """

    def __init__(
        self,
        session: Any,
        pending: Mapping[int, Pending],
        watchdog: Callable[[], Watchdog],
        stop_feeding: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda line: logging.warning("%s", line),
    ) -> None:
        self._session, self._pending, self._watchdog = session, pending, watchdog
        self._stop_feeding, self._say = stop_feeding, say
        self._met: Pending | None = None
        self._met_at = 0.0
        self._what = "a run"
        self._ending: Background | None = None

    def run_of_main_thread(self) -> Pending | None:
        """Return the run that the main thread is in; None if it is in none."""
        return self._pending.get(threading.main_thread().ident or 0)

    def arrived(self, number: int) -> None:
        """Begin to end the run that the main thread is in, after a signal. Exit at the second one for the same run."""
        run = self.run_of_main_thread()
        if run is None:
            return
        if run is not self._met:
            self._met, self._met_at, self._what = run, time.perf_counter(), "a run"
            self._ending = Background("staging:end", functools.partial(self._guarded, run, number))
            self._ending.start()
        elif time.perf_counter() - self._met_at > _SECOND_SECS and _may_exit(number):
            self._exit(number)

    def stop(self) -> None:
        """End what `arrived` has begun. May be called twice."""
        if self._ending is not None:
            self._ending.stop(_STOP_SECS)

    def _exit(self, number: int) -> None:
        self._say(f"{_name(number)} again: the program ends at once. Still running: {self._what}.")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # The main thread executes nothing, so no handler and no exception can end it.
        os._exit(128 + number)

    def _guarded(self, run: Pending, number: int) -> Iterator[float]:
        try:
            yield from self._end(run, number)
        except Exception as error:
            # The second signal must still find it.
            self._say(f"{_name(number)}: could not find out what the run waits for: {type(error).__name__}: {error}")

    def _end(self, run: Pending, number: int) -> Iterator[float]:
        yield _FIRST_LOOK_SECS
        if not self._is_running(run):
            return
        watchdog = self._watchdog()
        location, diagnosis = watchdog.what_hangs(run)
        if not self._is_running(run):
            return
        self._what = f"the run{location}: {diagnosis.cause}"
        if diagnosis.waits:
            self._say(f"{_name(number)} ends a run that waits{location}: {diagnosis.cause}.")
            self._stop_feeding()
            for secs in _WAKE_SECS:
                watchdog.wake(run, own=True)
                yield secs
                if not self._is_running(run):
                    return
            if not self._session.sess_str:
                # Cancels what honours that, such as the take of an accumulator.
                type(self._session).close(self._session)
                yield _CLOSE_SECS
        else:
            yield _COMPUTES_SECS
        if self._is_running(run):
            self._say(f"{_name(number)}: still running: {self._what}. {_what_next(number)}.")

    def _is_running(self, run: Pending) -> bool:
        return self._pending.get(run.ident) is run


def _name(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def _may_exit(number: int) -> bool:
    """Whether the process may end: nobody else handles the signal, or types the program."""
    return raised_for(number) is not None and not at_prompt()


def _what_next(number: int) -> str:
    if _may_exit(number):
        return f"Another {_name(number)} ends the program at once"
    return "Restart the kernel to end it" if at_prompt() else "Kill the process to end it"
