"""Knows which runs of a session are under way, and since when, at the price of two dictionary writes a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from staging_tf1.doctor.snapshot import Pending
from staging_tf1.errors import StallError
from staging_tf1.fork import disarm_in_child, has_lost_tensorflow, refuse_if_forked
from staging_tf1.lifecycle.interrupt import is_ctrl_c


class StepClock:
    """Times the runs of one session.

    The session's own `run` and `close` are wrapped, as attributes of that one session: a MonitoredSession tells its
    hooks neither that a step has failed nor that an error ends the session, and a hook sees no run of a plain session.

    Attributes:
      pending: the runs under way, by thread.
      stall_report: set by who ends a wait; from then on every run raises it as StallError.
      interrupted: whether a run that fails does so because of a Ctrl-C that nobody has been told of.
      on_close: called before the session is closed, in this order.
      on_run: called after each run with its start and end (perf_counter).
      untimed: the session's `run` as it was.
    """

    def __init__(self, session: Any) -> None:
        self.pending: dict[int, Pending] = {}
        self.stall_report: str | None = None
        self.interrupted: Callable[[], bool] = lambda: False
        self.on_run: Callable[[float, float], None] | None = None
        self._first_began = self._last_ended = 0.0
        self.on_close: list[Callable[[], None]] = []
        self._session = session
        self.untimed: Callable[..., Any] = session.run
        self._close: Callable[[], None] = session.close
        session.run, session.close = self._run, self._closed
        disarm_in_child(session)

    @property
    def loop_secs(self) -> float:
        """Seconds from the start of the first run to the end of the last."""
        return self._last_ended - self._first_began

    def timed(self, fetches: Any, call: Callable[..., Any], *, step: bool = True) -> Callable[..., Any]:
        """`call`, which runs `fetches` without the session's `run`, timed like that; unless it is a `step`, untold."""
        return partial(self._time, fetches, None, step, call)

    def _run(
        self, fetches: Any, feed_dict: Any | None = None, options: Any | None = None, run_metadata: Any | None = None
    ) -> Any:
        return self._time(fetches, feed_dict, True, self.untimed, fetches, feed_dict, options, run_metadata)

    def _time(self, fetches: Any, fed: Any, step: bool, call: Callable[..., Any], *args: Any) -> Any:
        refuse_if_forked("A session")
        ident, began = threading.get_ident(), time.perf_counter()
        self._first_began = self._first_began or began
        self.pending[ident] = Pending(ident, began, fetches, fed)
        try:
            result = call(*args)
        except KeyboardInterrupt:
            self.interrupted()
            raise
        except Exception as error:
            if is_ctrl_c(error) or self.interrupted():
                raise KeyboardInterrupt from None
            if self.stall_report is not None:
                raise StallError(self.stall_report) from error
            raise
        finally:
            self.pending.pop(ident, None)
            self._last_ended = time.perf_counter()
        if self.stall_report is not None:
            # It came through, on what the watchdog cleared away for it.
            raise StallError(self.stall_report)
        if self.on_run is not None and step:
            self.on_run(began, self._last_ended)
        return result

    def _closed(self) -> None:
        if has_lost_tensorflow():
            # It is the parent's, and so are the files that are written when it is closed.
            return
        self._session.run, self._session.close = self.untimed, self._close
        for ends in self.on_close:
            ends()
        self._close()
