"""The training loop of a session: steps until the data, or the plan, says stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow.compat.v1 as tf
from soak.outcome import Outcome, UserError
from soak.plan import Plan
from soak.sources import Pace
from soak.ways import Way

# What the op says that fails a step.
MADE_TO_FAIL = "made to fail"


class CtrlC:
    """SIGINT as a user sends it, once a session: in the loop it may fall between any two instructions.

    Attributes:
      sent: whether it has been sent while the loop was running.
    """

    def __init__(self) -> None:
        self.sent = self._in_loop = False

    def send(self) -> None:
        """Send it, from any thread."""
        if self._in_loop and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)

    @contextmanager
    def expected(self) -> Iterator[None]:
        """From here on it does nothing outside the loop: a session that opens or closes is not what is tried."""
        self.sent = False
        before = signal.signal(signal.SIGINT, _nothing)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def in_loop(self) -> Iterator[None]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._in_loop = True
        try:
            yield
        finally:
            self._in_loop = False
            signal.signal(signal.SIGINT, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None:
    return None


class Loop:
    """Takes the steps of one session, with one thread or with several at once."""

    def __init__(self, plan: Plan, rounds: list[list[int]], outcome: Outcome, way: Way) -> None:
        self._plan, self._rounds, self._outcome, self._way = plan, rounds, outcome, way
        self._pace = Pace(plan.step_pace, f"{plan.seed}/step")
        self._lock = threading.Lock()
        self._over = False

    def run(self) -> None:
        """Common steps to the end of the data, then each tower alone, unless the plan stops it."""
        if self._plan.consumers > 1:
            phases = self._rounds[1:] or self._rounds * self._plan.consumers
            with ThreadPoolExecutor(len(phases)) as pool:
                list(pool.map(self._steps_of, phases))
        else:
            for towers in self._rounds:
                self._steps_of(towers)
        self._outcome.ended = not self._over

    def _steps_of(self, towers: list[int]) -> None:
        while not self._over:
            with self._lock:
                number = self._outcome.steps
                if self._stops(number):
                    self._over = True
                    return
                self._outcome.steps += 1
            try:
                values = self._way.take(towers, number in self._plan.failing, self._plan.timeouts.get(number))
            except (tf.errors.InvalidArgumentError, tf.errors.DeadlineExceededError) as error:
                if isinstance(error, tf.errors.InvalidArgumentError) and MADE_TO_FAIL not in error.message:
                    raise
                with self._lock:
                    self._outcome.failed_steps += 1
                continue
            except tf.errors.OutOfRangeError:
                return
            with self._lock:
                self._note(towers, values)
            self._pace.pause(number)

    def _note(self, towers: list[int], values: list[Any]) -> None:
        for tower, value in zip(towers, values):
            assert (2 * value["id"] == value["double"]).all(), "the components of one batch"
            self._outcome.got[tower].append(value["id"].tolist())

    def _stops(self, number: int) -> bool:
        """Whether the loop ends before the step `number`."""
        stop = self._plan.stop
        if stop == "request_stop":
            return self._way.should_stop()
        if number != self._plan.stop_at:
            return False
        if self._plan.consumers > 1 and stop in ("break", "exception"):
            # Another thread may wait for the round of which this one would have taken its part.
            self._way.request_stop()
        if stop == "exception":
            self._over = True
            self._outcome.user_error = UserError("the loop's own")
            raise self._outcome.user_error
        if stop == "drain":
            self._way.drain()
            self._outcome.drained = True
        return stop == "break"
