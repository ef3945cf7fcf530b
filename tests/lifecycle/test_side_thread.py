"""The thread that makes calls for a loop which must be able to stop waiting for one."""

from __future__ import annotations

import linecache
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from staging_tf1.background import Background, Stop
from staging_tf1.lifecycle.side_thread import SideThread

LIMIT_SECS = 200.0


@pytest.fixture
def side() -> Iterator[SideThread]:
    """A side thread, which ends with the test."""
    thread = SideThread("test:side")
    yield thread
    thread.stop()
    if thread.thread.ident is not None:
        thread.thread.join(LIMIT_SECS)
        assert not thread.thread.is_alive()


class Gate:
    """A call that tells when it has begun, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(LIMIT_SECS)
        self.ended.set()


def caller_of(side: SideThread, call: Any) -> tuple[threading.Thread, list[BaseException | None]]:
    """A thread that makes `call`, and what came of it."""
    outcome: list[BaseException | None] = []

    def make() -> None:
        try:
            side.call(call)
        except BaseException as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=make)
    thread.start()
    return thread, outcome


def test_one_thread_makes_all_calls_and_each_has_ended_when_it_returns(side: SideThread) -> None:
    assert side.thread.ident is None, "a loop that never calls has no thread"
    made: list[tuple[int, threading.Thread]] = []
    for number in range(5):
        side.call(lambda number=number: made.append((number, threading.current_thread())))  # type: ignore[misc]
        assert made[-1] == (number, side.thread) and len(made) == number + 1
    assert side.thread.daemon, "one that never comes back must not keep the process"


@pytest.mark.parametrize("kind", [ValueError, StopIteration, SystemExit, KeyboardInterrupt])
def test_what_a_call_raises_is_raised_where_it_was_made(side: SideThread, kind: type[BaseException]) -> None:
    error, made = kind("bad"), []

    def fail() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(kind) as caught:
            side.call(fail)
        assert caught.value is error
        side.call(lambda: made.append(1))
    assert made == [1, 1], "the thread goes on"


def test_giving_up_ends_the_call_under_way_and_refuses_every_later_one(side: SideThread) -> None:
    gate, error, made = Gate(), TimeoutError("stalled"), []
    thread, outcome = caller_of(side, gate)
    assert gate.begun.wait(LIMIT_SECS)
    side.give_up(error)
    thread.join(LIMIT_SECS)
    assert outcome == [error] and not gate.ended.is_set(), "it is still under way"
    gate.may_end.set()
    for _ in range(2):
        with pytest.raises(TimeoutError) as caught:
            side.call(lambda: made.append(1))
        assert caught.value is error
    assert made == [] and gate.ended.wait(LIMIT_SECS)


def test_giving_up_between_two_calls_refuses_the_next(side: SideThread) -> None:
    side.call(lambda: None)
    side.give_up(TimeoutError("stalled"))
    with pytest.raises(TimeoutError):
        side.call(lambda: pytest.fail("it was made"))


@pytest.mark.parametrize("begun", [False, True])
def test_a_stop_lets_the_call_under_way_end(begun: bool) -> None:
    side, gate = SideThread("test:side"), Gate()
    if begun:
        thread, outcome = caller_of(side, gate)
        assert gate.begun.wait(LIMIT_SECS)
    side.stop()
    side.stop()
    if not begun:
        assert side.thread.ident is None
        return
    assert side.thread.is_alive()
    gate.may_end.set()
    for each in (thread, side.thread):
        each.join(LIMIT_SECS)
        assert not each.is_alive()
    assert outcome == [None]


def interrupted(side: SideThread, gate: Gate) -> None:
    """Make the call `gate`, whose caller, the main thread, gets a Ctrl-C while it waits for it."""
    main, told = threading.get_ident(), threading.Event()

    def once(*_: Any) -> None:
        if not told.is_set():
            told.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        # One signal may arrive just before the main thread begins to wait, which that does not end.
        while not told.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            told.wait(0.01)
        gate()

    before = signal.signal(signal.SIGINT, once)
    try:
        with pytest.raises(KeyboardInterrupt):
            side.call(interrupt)
        assert gate.begun.wait(LIMIT_SECS), "no more signals are under way"
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_call_that_was_interrupted_ends_before_the_next_one(side: SideThread) -> None:
    gate, order = Gate(), []
    interrupted(side, gate)
    assert not gate.ended.is_set()
    gate.may_end.set()
    side.call(lambda: order.append(gate.ended.is_set()))
    side.call(lambda: order.append(True))
    assert order == [True, True]


def test_what_an_interrupted_call_raises_is_raised_by_the_next(side: SideThread) -> None:
    gate, error, made = Gate(), ValueError("bad"), []

    def fail() -> None:
        raise error

    gate.ended.set = fail  # type: ignore[method-assign]
    interrupted(side, gate)
    gate.may_end.set()
    with pytest.raises(ValueError, match="bad") as caught:
        side.call(lambda: made.append(1))
    assert caught.value is error and made == [], "it was not made"
    side.call(lambda: made.append(2))
    assert made == [2]


def test_an_interrupted_call_can_be_given_up(side: SideThread) -> None:
    gate = Gate()
    interrupted(side, gate)
    thread, outcome = caller_of(side, lambda: None)
    error = TimeoutError("stalled")
    side.give_up(error)
    thread.join(LIMIT_SECS)
    assert outcome == [error]
    gate.may_end.set()


@pytest.mark.parametrize("started", [False, True])
def test_a_call_after_a_stop_is_refused(started: bool) -> None:
    side = SideThread("test:side")
    if started:
        side.call(lambda: None)
    side.stop()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the thread 'test:side' is stopped"):
            side.call(lambda: pytest.fail("it was made"))
    if started:
        side.thread.join(LIMIT_SECS)
    assert not side.thread.is_alive()


def test_what_an_interrupted_call_raised_comes_before_the_refusal() -> None:
    side, gate, error = SideThread("test:side"), Gate(), ValueError("bad")

    def fail() -> None:
        raise error

    gate.ended.set = fail  # type: ignore[method-assign]
    interrupted(side, gate)
    side.stop()
    gate.may_end.set()
    with pytest.raises(ValueError, match="bad"):
        side.call(lambda: None)
    with pytest.raises(RuntimeError, match="is stopped"):
        side.call(lambda: None)
    side.thread.join(LIMIT_SECS)


def test_a_stop_beside_a_call_lets_it_be_made_or_refuses_it() -> None:
    for _ in range(300):
        side, made = SideThread("test:side"), list[int]()
        side.call(lambda made=made: made.append(0))  # type: ignore[misc]
        thread, outcome = caller_of(side, lambda made=made: made.append(1))
        side.stop()
        for each in (thread, side.thread):
            each.join(LIMIT_SECS)
            assert not each.is_alive()
        assert made == ([0, 1] if outcome == [None] else [0])
        assert outcome == [None] or isinstance(outcome[0], RuntimeError)


class Interrupts:
    """A trace function that raises KeyboardInterrupt once, before the `which`-th line of the calling code."""

    functions: tuple[Any, ...] = (
        *(SideThread.call, SideThread._collect, SideThread._start, SideThread._renew),
        *(Background.__init__, Stop.wake, threading.Thread.start),
    )

    def __init__(self, which: int) -> None:
        self.left = which
        self._code = {function.__code__ for function in self.functions}

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code not in self._code:
            return None
        if event == "line" and self.left and self._is_meant(frame):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self

    @staticmethod
    def _is_meant(frame: Any) -> bool:
        # Of Python's own code the line at which the thread runs, and the caller does not know it yet.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return frame.f_code is not threading.Thread.start.__code__ or "_started.wait" in line


def interrupted_at(which: int, calls: list[Callable[[], None]]) -> tuple[bool, list[BaseException]]:
    """Make `calls`, with a Ctrl-C at one line of those before the last: whether it came, and what else was raised."""
    raised: list[BaseException] = []
    interrupts, side = Interrupts(which), SideThread("test:side")

    def make() -> None:
        sys.settrace(interrupts)
        for number, call in enumerate(calls):
            if number == len(calls) - 1:
                sys.settrace(None)
            try:
                side.call(call)
            except BaseException as error:
                raised.append(error)

    caller = threading.Thread(target=make, daemon=True)
    caller.start()
    caller.join(LIMIT_SECS)
    assert not caller.is_alive(), f"a Ctrl-C at line {which} makes a call wait forever"
    side.stop()
    side.thread.join(LIMIT_SECS)
    errors = [error for error in raised if not isinstance(error, KeyboardInterrupt)]
    came = not interrupts.left
    assert len(raised) - len(errors) == came
    return came, errors


@pytest.mark.parametrize("failing", [None, 0, 1])
def test_a_ctrl_c_at_any_line_loses_no_call_and_no_outcome(failing: int | None) -> None:
    error, which, came = ValueError("bad"), 0, True
    while came:
        which += 1
        made: list[int] = []

        def make(number: int, made: list[int] = made) -> None:
            made.append(number)
            if number == failing:
                raise error

        came, errors = interrupted_at(which, [partial(make, number) for number in range(4)])
        assert made == sorted(set(made)) and made[-1] == 3, f"line {which}: each is made once at most, in order"
        assert errors == [error] * (failing in made), f"line {which}: what it raised is raised once"
        # One may be interrupted before it is made, and one raises what the one before it has left.
        assert len(made) >= 4 - (came + (came and bool(errors))), f"line {which}: no other is left out"
    assert which > 40, "all calls have been interrupted"


def test_an_interrupted_call_that_is_given_up_raises_that_ever_after() -> None:
    for which in range(1, 60):
        side, interrupts, gate, error = SideThread("test:side"), Interrupts(which), Gate(), TimeoutError("stalled")
        raised: list[BaseException] = []

        def make(
            side: SideThread = side, interrupts: Interrupts = interrupts, gate: Gate = gate, raised: Any = raised
        ) -> None:
            sys.settrace(interrupts)
            for _ in range(3):
                try:
                    side.call(gate)
                except BaseException as caught:
                    raised.append(caught)
            sys.settrace(None)

        caller = threading.Thread(target=make, daemon=True)
        caller.start()
        assert gate.begun.wait(LIMIT_SECS)
        side.give_up(error)
        caller.join(LIMIT_SECS)
        assert not caller.is_alive(), f"line {which}"
        errors = [each for each in raised if not isinstance(each, KeyboardInterrupt)]
        assert len(raised) == 3 and errors == [error] * (3 if interrupts.left else 2)
        gate.may_end.set()
        side.stop()
        side.thread.join(LIMIT_SECS)
        assert not side.thread.is_alive()
