"""Runs calls of the training loop in a thread of its own, so that the loop can stop waiting for one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from staging_tf1.background import Background, Stop
from staging_tf1.fork import refuse_if_forked


# By identity: two calls of one function are not the same.
@dataclass(eq=False)
class _Call:
    """A call, and what came of it."""

    function: Callable[[], None]
    error: BaseException | None = None
    done: bool = False
    # Wakes the caller, who then looks whether the call is done.
    wake_ups: SimpleQueue[None] = field(default_factory=SimpleQueue)

    def make(self) -> None:
        try:
            self.function()
        except BaseException as error:
            self.error = error
        self.done = True
        self.wake_ups.put(None)


class SideThread:
    """One daemon thread that makes one call at a time, for one caller.

    An exception could be raised in the calling thread from outside, but it would only arrive there when Python's own
    code runs again: not in a read from a socket, in `time.sleep` or in a lock.

    A Ctrl-C may interrupt the caller between any two instructions. The next call then waits for the call that is open,
    and raises what that raised. So a wake-up carries nothing: both sides look at the open call, and an extra wake-up
    does no harm. Only a `SimpleQueue` will do, because it is written in C: a Ctrl-C within the `wait` of a
    `threading.Event` can leave the event's lock held.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The call whose outcome the caller has not got yet.
        self._open: _Call | None = None
        self._gave_up: BaseException | None = None
        self._stopping = Stop()
        self._started = self._ended = False
        self._renew()

    def _renew(self) -> None:
        self.thread = Background(self._name, self._serve, self._stopping)

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` in the thread and wait for it; raise what it raises, or what `give_up` was given.

        Raises:
          RuntimeError: `stop` has been called.
        """
        self._collect()
        if self._stopping.is_set:
            raise self._refusal()
        if not self._started:
            self._start()
        self._open = _Call(function)
        self._collect()

    def _start(self) -> None:
        # After a Ctrl-C in `Thread.start` nobody knows whether the thread runs. It is replaced, and ends when it wakes.
        self._renew()
        self.thread.start()
        self._started = True

    def _collect(self) -> None:
        """Wait for the open call, if there is one, and raise what it raised."""
        call = self._open
        if call is not None:
            self._stopping.wake()
            while not (call.done or self._ended) and self._gave_up is None:
                call.wake_ups.get()
        if self._gave_up is not None:
            raise self._gave_up
        if call is None:
            return
        if not call.done:
            self._open = None
            raise self._refusal()
        if call.error is None:
            self._open = None
            return
        try:
            raise call.error
        finally:
            # If a Ctrl-C comes first, the error is left to the next call.
            self._open = None if sys.exc_info()[1] is call.error else call

    def _refusal(self) -> RuntimeError:
        return RuntimeError(f"the thread '{self._name}' is stopped, because its session has ended. Run no more steps.")

    def give_up(self, error: BaseException) -> None:
        """Raise `error` from the call under way, and from every later one; the thread itself cannot be stopped."""
        self._gave_up = error
        self._wake_caller()

    def stop(self) -> None:
        """Let the thread end after the call under way. Does not join it."""
        self._stopping.set()

    def _wake_caller(self) -> None:
        call = self._open
        if call is not None:
            call.wake_ups.put(None)

    def _serve(self) -> None:
        thread = threading.current_thread()
        while True:
            self._stopping.wait()
            if self.thread is not thread:
                # The wake-up was for the thread that has replaced it.
                self._stopping.wake()
                return
            call = self._open
            if call is not None and not call.done and self._gave_up is None:
                call.make()
                # The call may have forked, and in the child nobody waits for the outcome.
                refuse_if_forked("A feed thread")
            if self._stopping.is_set:
                break
        # The caller sets `_open` and then looks at `_ended`, so that one of the two sees the other.
        self._ended = True
        self._wake_caller()
