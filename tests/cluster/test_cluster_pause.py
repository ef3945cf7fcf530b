"""The pause of a cluster: everybody stands still between two steps, or is done without in bounded time.

The ledger is on a real server of this process; the tasks are threads of it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from clusters import until
from load import slowdown

from staging_tf1.cluster import pause, reach
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.gate import Gate
from staging_tf1.cluster.layout import Task
from staging_tf1.cluster.pause import PAUSE

WORKER = Task("worker", 1)


class Tasks:
    """A parameter server, a chief and a worker. `listening` are the sockets of the last two."""

    def __init__(self, members: Any) -> None:
        self.listening = members.listening
        self.chief, self.worker = (members.member("worker", index) for index in range(2))
        for each in (self.chief, self.worker):
            each.ledger.write({f"task/{each.task}": {"process": each._process}, f"fence/{each.task}": str(each.task)})


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, make_members: Callable[..., Any]) -> Callable[..., Tasks]:
    """Make a cluster. What is bounded by seconds is bounded by less than one."""
    monkeypatch.setattr(pause, "_ANSWER_SECS", 0.5)
    monkeypatch.setattr(pause, "_STUCK_SECS", 0.2)
    monkeypatch.setattr(pause, "_CHIEF_SECS", 0.2)
    return lambda silence_secs=60.0: Tasks(make_members(silence_secs=silence_secs, listens=True))


class Run:
    """A run in a thread of its own that passes a gate, and ends when it is told to."""

    def __init__(self, gate: Gate, *, takes: bool = True) -> None:
        self._gate, self._takes, self._end = gate, takes, threading.Event()
        self.began, self.ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._gate.enter(self._takes)
        self.began.set()
        self._end.wait(60)
        self._gate.leave(self._takes)
        self.ended.set()

    def end(self) -> None:
        self._end.set()
        assert self.ended.wait(60)


def test_a_closed_gate_lets_nobody_begin_but_its_holder() -> None:
    gate = Gate(Clock())
    gate.close(threading.get_ident())
    run = Run(gate)
    gate.enter(True)
    assert not run.began.wait(0.05)
    gate.leave(True)
    gate.open()
    assert run.began.wait(60)
    run.end()


def test_a_gate_is_at_rest_when_the_runs_under_way_have_ended() -> None:
    gate = Gate(Clock())
    run = Run(gate)
    assert run.began.wait(60)
    gate.close()
    assert not gate.await_rest(0.01)
    run.end()
    assert gate.await_rest(60)


def test_a_closed_gate_does_not_count_the_time_in_which_this_process_stood_still() -> None:
    now = iter([0.0, 0.1, 0.2, 60.0, 60.1])
    clock = Clock(lambda: next(now))
    gate = Gate(clock)
    gate.close()
    clock.now()
    # It was stopped for a minute.
    clock.now()
    assert gate.closed_secs < 1.0


@pytest.mark.parametrize(("takes", "at_rest"), [(True, True), (False, False)])
def test_a_run_that_waits_for_its_batch_is_at_rest(takes: bool, at_rest: bool) -> None:
    gate = Gate(Clock())
    run = Run(gate, takes=takes)
    assert run.began.wait(60)
    gate.close()
    assert not gate.is_at_rest()
    gate.only_wait = lambda: True
    assert gate.is_at_rest() is at_rest
    run.end()


def test_a_worker_stands_still_in_a_pause_and_only_there(tasks: Callable[..., Tasks]) -> None:
    cluster = tasks()
    cluster.worker.start()
    for _ in range(3):
        with cluster.chief.pauses.pause() as text:
            assert cluster.worker.gate.is_closed and cluster.chief.gate.is_closed
            (found,) = cluster.chief.ledger.read([PAUSE]).values()
            assert found["id"] in text
        until(lambda: not cluster.worker.gate.is_closed, "the worker goes on")
        assert not cluster.chief.gate.is_closed and not cluster.chief.ledger.read([PAUSE])


def test_a_pause_waits_for_a_step_that_is_under_way(tasks: Callable[..., Tasks]) -> None:
    cluster = tasks()
    cluster.worker.start()
    run = Run(cluster.worker.gate)
    assert run.began.wait(60)
    threading.Timer(0.3, run.end).start()
    with cluster.chief.pauses.pause():
        assert run.ended.is_set()


def test_a_step_that_does_not_end_is_named_and_waited_for_only_once(
    tasks: Callable[..., Tasks], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = tasks(silence_secs=1.0)
    for each in (cluster.chief, cluster.worker):
        each.start()
    run = Run(cluster.worker.gate)
    assert run.began.wait(60)
    with caplog.at_level(logging.WARNING, logger="absl"):
        for _ in range(2):
            with cluster.chief.pauses.pause():
                assert not run.ended.is_set()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("worker 1 at 127.0.0.1:") and "does not stand still for the checkpoint" in said
    # It begins no further step in a pause, so it may stay.
    assert cluster.chief.ledger.read(["fence/worker 1"]) == {"fence/worker 1": "worker 1"}
    run.end()


def test_a_worker_that_does_not_answer_loses_its_fence(
    tasks: Callable[..., Tasks], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = tasks()
    # It listens, and runs no thread, as a process that is stopped.
    with caplog.at_level(logging.WARNING, logger="absl"), cluster.chief.pauses.pause():
        assert cluster.chief.ledger.read(["fence/worker 1"]) == {}
    assert "does not stand still" in caplog.text


def test_a_worker_that_is_gone_is_not_waited_for(
    tasks: Callable[..., Tasks], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pause, "_ANSWER_SECS", 60.0)
    cluster = tasks()
    cluster.listening[1].close()
    with caplog.at_level(logging.WARNING, logger="absl"), cluster.chief.pauses.pause():
        assert cluster.chief.ledger.read(["fence/worker 1"]) == {}
    assert caplog.text == ""


@pytest.mark.parametrize("gone", [1, 3, 10])
@pytest.mark.parametrize("how", ["silent", "vanished", "refused"])
@pytest.mark.slow_cases(r"(?!(silent-3|vanished-1|refused-3)$).*")
def test_workers_that_are_gone_do_not_hold_up_a_pause(
    monkeypatch: pytest.MonkeyPatch, make_members: Callable[..., Any], how: str, gone: int
) -> None:
    members = make_members(gone + 1, listens=how == "vanished")
    chief, never = members.member("worker", 0), threading.Event()
    others = chief.layout.workers[1:]

    def no_answer(address: str) -> None:
        never.wait(2.0)
        raise TimeoutError

    if how == "silent":
        monkeypatch.setattr(chief.signs, "is_gone", others.__contains__)
    if how == "vanished":
        # They have just given a sign of life.
        chief.signs.note({f"task/{task}": 1 for task in others})
        chief.pauses.meet()
        until(lambda: all(met.is_answered for met in chief.pauses._met.values()), "the chief has met them")
        for each in members.listening:
            each.close()
    if how != "refused":
        # Packets to them are lost.
        monkeypatch.setattr(reach, "connect", no_answer)
    took = []
    for _ in range(3):
        chief.ledger.write({f"task/{task}": {"process": str(task)} for task in others})
        chief.ledger.write({f"fence/{task}": "1" for task in others})
        began = time.monotonic()
        with chief.pauses.pause():
            took.append(time.monotonic() - began)
            assert chief.ledger.read([f"fence/{task}" for task in others]) == {}
    # Half a second, and what a busy machine adds. One after the other, they would take two seconds each.
    slower = slowdown()
    assert min(took[1:]) < 1.5 * slower and took[0] < 2.0 * slower


def test_a_long_pause_costs_the_server_less_for_each_of_many_workers(
    monkeypatch: pytest.MonkeyPatch, make_members: Callable[..., Any]
) -> None:
    member = make_members(100).member("worker", 1)
    waits = queue.Queue[float]()
    await_end = member.pauses.bells.await_end

    def await_end_noted(secs: float) -> bytes:
        waits.put(secs)
        return await_end(secs)

    monkeypatch.setattr(member.pauses.bells, "await_end", await_end_noted)
    member.ledger.write({PAUSE: {"id": "1", "by": "worker 0"}})
    member.pauses.bells.ask([member.task])
    member.pauses.start()
    assert waits.get(timeout=60) == pytest.approx(2.0, abs=0.1)
    # It ends in the middle of a pause, too.
    began = time.monotonic()
    member.stop()
    took = time.monotonic() - began
    assert took < 1.5 * slowdown() and waits.empty()


@pytest.mark.parametrize("entries", [{"done/worker 1": "1"}, {"away/worker 1": "process"}])
def test_a_worker_that_makes_no_further_step_is_not_asked(tasks: Callable[..., Tasks], entries: dict[str, str]) -> None:
    cluster = tasks()
    cluster.chief.ledger.write({"run": {"id": "1"}, "task/worker 1": {"process": "process"}, **entries})
    with cluster.chief.pauses.pause():
        assert cluster.chief.ledger.read(["fence/worker 1"]) == {"fence/worker 1": "worker 1"}


def test_a_member_that_stops_is_not_asked_and_one_that_starts_again_is(tasks: Callable[..., Tasks]) -> None:
    cluster = tasks()
    for _ in range(2):
        cluster.worker.start()
        fence_key = cluster.worker.take_fence()
        with cluster.chief.pauses.pause():
            assert cluster.worker.gate.is_closed
        cluster.worker.stop()
        with cluster.chief.pauses.pause():
            assert cluster.chief.ledger.read(["fence/worker 1"]) == {"fence/worker 1": fence_key}


def test_workers_go_on_without_a_chief_that_is_gone_and_break_its_pause(tasks: Callable[..., Tasks]) -> None:
    cluster = tasks()
    cluster.worker.start()
    entered, leave = queue.Queue[bool](), threading.Event()

    def hold() -> None:
        with cluster.chief.pauses.pause():
            entered.put(True)
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.get(timeout=60)
    cluster.listening[0].close()
    until(lambda: not cluster.worker.gate.is_closed, "the worker goes on")
    assert cluster.chief.ledger.read([PAUSE]) == {}
    leave.set()
    holder.join()


def test_a_worker_that_joins_in_a_pause_waits_for_its_end(tasks: Callable[..., Tasks]) -> None:
    cluster = tasks()
    joined = threading.Event()

    def join() -> None:
        cluster.worker.pauses.await_none()
        joined.set()

    with cluster.chief.pauses.pause():
        threading.Thread(target=join, daemon=True).start()
        assert not joined.wait(0.1)
    assert joined.wait(60)


def test_a_chief_that_begins_lets_steps_end_first(tasks: Callable[..., Tasks]) -> None:
    cluster = tasks()
    cluster.worker.start()
    run: Any = Run(cluster.worker.gate)
    assert run.began.wait(60)
    threading.Timer(0.2, run.end).start()
    cluster.chief.begin_run()
    assert run.ended.is_set()


def test_a_chief_that_begins_does_not_wait_for_workers_that_have_not_begun(
    tasks: Callable[..., Tasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = tasks()
    asked: list[Any] = []
    monkeypatch.setattr(cluster.chief.pauses.bells, "ask", asked.append)
    # It has a sign of life and waits for the chief, as at the start of a cluster.
    cluster.chief.ledger.remove(["fence/worker 1"])
    cluster.worker.start()
    until(lambda: "beat" in cluster.chief.ledger.read()["task/worker 1"], "it gives signs of life")
    cluster.chief.begin_run()
    assert asked == []
    # A worker whose steps show no fence tells in its signs of life that it has joined a run.
    cluster.chief.mark_initialized()
    run_id = cluster.worker.await_run({}, 60.0)
    until(lambda: cluster.chief.ledger.read()["task/worker 1"]["run"] == run_id, "it tells the run")
    cluster.chief.begin_run()
    assert asked == [[WORKER]]


def test_a_pause_of_many_workers_reads_few_entries_at_a_time(
    monkeypatch: pytest.MonkeyPatch, make_members: Callable[..., Any]
) -> None:
    chief = make_members(101).member("worker", 0)
    others = chief.layout.workers[1:]
    chief.ledger.write({f"fence/{task}": "1" for task in others})
    read, sizes = chief.ledger.read, []

    def answer(names: Any = None) -> dict[str, Any]:
        sizes.append(len(names or ()))
        found = read(names)
        return found if names is None else {**found, **{name: [read([PAUSE])[PAUSE]["id"], True] for name in names}}

    monkeypatch.setattr(chief.ledger, "read", answer)
    with chief.pauses.pause():
        # First all entries, to know who is there.
        assert sizes == [0, 20, 20, 20, 20, 20]
