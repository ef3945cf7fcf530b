"""Runs calls of the training loop in a thread of its own, so that the loop can stop waiting for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from staging_tf1.fork import has_lost_tensorflow, refuse_if_forked


class SideThread:
    """One daemon thread that makes one call at a time, for one caller.

    An exception could be raised in the calling thread from outside, but it would only arrive there when Python's own
    code runs again: not in a read from a socket, in `time.sleep` or in a lock.
    """

    def __init__(self, name: str) -> None:
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        self._gave_up: BaseException | None = None
        # Whether a call's outcome has not been collected yet: after a Ctrl-C, it comes before the next call.
        self._owed = False

    def call(self, function: Callable[[], None]) -> None:
        """Runs `function` in the thread and waits for it; raises what it raises, or what `give_up` was given."""
        self._collect()
        if self.thread.ident is None:
            self.thread.start()
        self._owed = True
        self._calls.put(function)
        self._collect()

    def _collect(self) -> None:
        if self._gave_up is not None:
            raise self._gave_up
        if self._owed:
            error = self._outcomes.get()
            self._owed = False
            if error is not None:
                raise error

    def give_up(self, error: BaseException) -> None:
        """Raises `error` from the call under way, and from every later one; the thread itself cannot be stopped."""
        self._gave_up = error
        self._outcomes.put(error)

    def stop(self) -> None:
        """Lets the thread end after the call under way. Does not join it."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:
                if has_lost_tensorflow():
                    # The call has forked, and this is the child, in which nobody waits for the outcome.
                    raise
                self._outcomes.put(error)
            else:
                refuse_if_forked("A feed thread")
                self._outcomes.put(None)
