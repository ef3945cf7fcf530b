"""Clocks that measure the silence of others: they stand still when this process or the ledger does."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.signs import Signs
from staging_tf1.cluster.waiting import Backoff

LAYOUT = Layout({"ps": {0: "h:1"}, "worker": {0: "h:2", 1: "h:3"}}, Task("worker", 0))
OTHER = Task("worker", 1)


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.secs = 100.0

    def __call__(self) -> float:
        return self.secs


def test_a_clock_leaves_out_what_the_process_stood_still() -> None:
    draw, time = random.Random(0), Time()
    clock = Clock(time)
    began, ran, stood = clock.now(), 0.0, 0.0
    stops = 0
    for _ in range(2000):
        stopped = draw.random() < 0.05
        secs = draw.uniform(2.0, 500.0) if stopped else draw.uniform(0.0, 0.3)
        time.secs += secs
        ran, stood, stops = (ran, stood + secs, stops + 1) if stopped else (ran + secs, stood, stops)
        # At each stop, the clock cannot tell up to a tick of it.
        assert clock.now() - began == pytest.approx(ran, abs=0.25 * stops + 1e-6)
    assert stops > 50
    assert clock.stood_still_secs == pytest.approx(stood, abs=0.25 * stops + 1e-6)


class Listener:
    """A task that reads the ledger every second, and what it concludes of another worker."""

    def __init__(self) -> None:
        self.time = Time()
        self.clock = Clock(self.time)
        self.signs = Signs(LAYOUT, silence_secs=10.0, start_secs=30.0, clock=self.clock)
        self.number = 0

    def hears(self, secs: int, *, alive: bool) -> None:
        """The ledger answers at once."""
        for _ in range(secs):
            self._pass(1.0)
            self.number += alive
            sign: dict[str, Any] = {f"task/{OTHER}": {"beat": self.number}} if self.number else {}
            self.signs.note(sign)

    def is_not_answered(self, secs: float) -> None:
        """The ledger does not answer, or another thread that waits for it keeps this one from asking."""
        self._pass(secs)

    def waits_for_answer(self, secs: float) -> None:
        """The ledger answers late, with what it held when it stood still."""
        self._pass(secs)
        self.signs.note({f"task/{OTHER}": {"beat": self.number}})

    def stands_still(self, secs: float) -> None:
        self.time.secs += secs

    def _pass(self, secs: float) -> None:
        # Somebody looks at the clock all the time.
        for _ in range(int(4 * secs)):
            self.time.secs += 0.25
            self.clock.now()

    @property
    def blames(self) -> bool:
        return self.signs.is_gone(OTHER)


@pytest.fixture
def listener() -> Listener:
    listener = Listener()
    listener.hears(5, alive=True)
    return listener


def test_a_worker_that_is_silent_while_others_are_heard_is_gone(listener: Listener) -> None:
    listener.hears(9, alive=False)
    assert not listener.blames
    listener.hears(2, alive=False)
    assert listener.blames
    assert listener.signs.described(OTHER) == "worker 1 at h:3 (silent for 11 s)"
    listener.hears(1, alive=True)
    assert not listener.blames


@pytest.mark.parametrize("secs", [3, 12, 600])
@pytest.mark.parametrize("what", ["stands_still", "is_not_answered", "waits_for_answer"])
def test_nobody_is_blamed_for_what_could_not_be_heard(listener: Listener, what: str, secs: int) -> None:
    for _ in range(10):
        listener.hears(2, alive=True)
        getattr(listener, what)(secs)
        # The other one needs a moment, too.
        listener.hears(5, alive=False)
        assert not listener.blames
    listener.hears(12, alive=False)
    assert listener.blames


def test_a_ledger_that_answers_now_and_then_does_not_hide_a_silent_worker(listener: Listener) -> None:
    for _ in range(20):
        listener.hears(2, alive=False)
        listener.is_not_answered(5)
    assert listener.blames


def test_a_task_that_was_never_seen_has_longer() -> None:
    listener = Listener()
    listener.hears(29, alive=False)
    assert not listener.blames
    listener.stands_still(100)
    listener.hears(3, alive=False)
    assert listener.blames
    assert listener.signs.described(OTHER) == "worker 1 at h:3 (never seen)"


# How often the ledger is read by those who wait.


def looks(workers: int, place: int, secs: float) -> list[float]:
    """When a worker looks that waits for so many seconds."""
    layout = Layout({"ps": {0: "h:1"}, "worker": {i: f"h:{i + 2}" for i in range(workers)}}, Task("worker", place))
    pauses, now, found = Backoff(layout), 0.0, [0.0]
    while (now := now + pauses.next()) < secs:
        found.append(now)
    return found


def test_few_workers_look_several_times_a_second() -> None:
    found = looks(2, 1, 60.0)
    assert found[1] < 0.15
    assert max(later - earlier for earlier, later in itertools.pairwise(found)) < 0.65


@pytest.mark.parametrize("workers", [100, 1000, 5000])
def test_all_workers_together_look_as_often_however_many_wait(workers: int) -> None:
    places = range(0, workers, workers // 50)
    total = sum(len(looks(workers, place, 600.0)) for place in places) * workers / len(places)
    # In looks per second, of which each takes 0.4 ms of the server.
    assert total / 600.0 < 250
    # They do not look at the same time.
    assert len({round(looks(workers, place, 60.0)[1], 4) for place in places}) > 40
