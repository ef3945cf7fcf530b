"""What a worker does while it waits for batches that the chief hands out, with a ledger in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from clusters import until

from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.dealer import Dealer
from staging_tf1.cluster.dealing import Dealing, Names
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.errors import ClusterError
from staging_tf1.feed import supply as supply_module
from staging_tf1.feed.supply import LeasedSupply
from staging_tf1.graph.acked import Acked

ME, CHIEF = "worker 1", Task("worker", 0)
NAMES = Names("train")
RUN = {"id": "run", "state": "initialized", "process": "the chief"}


class Ledger:
    """The texts of a ledger, without a server."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {"run": RUN, NAMES.fence(ME): "token"}
        self.error: Exception | None = None
        self.written = 0

    def read(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {name: entry for name, entry in self.entries.items() if names is None or name in names}

    def write(self, entries: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.written += 1
        self.entries.update(entries)


class Bench:
    """A worker with a supply, in a cluster whose other tasks are played by the test."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.silent = 0.0
        self.acked = Acked.first(0)
        self.staged = 0
        member = SimpleNamespace(
            ledger=self.ledger,
            clock=Clock(),
            fence_key="token",
            run_id="run",
            rival=lambda: None,
            signs=SimpleNamespace(silent_secs=lambda task: self.silent),
        )
        layout = Layout({"ps": {0: "h:1"}, "worker": {0: "h:2", 1: "h:3"}}, Task("worker", 1))
        cluster: Any = SimpleNamespace(member=member, member_task=ME, layout=layout, start_timeout_secs=9.0)
        self.skipped: list[int] = []
        self.supply = LeasedSupply(cluster, "train", lambda: (self.staged, self.acked), self.skipped.append)
        self.dealing: Dealing | None = None

    def deal(self, num_batches: int | None = None) -> None:
        if self.dealing is None:
            self.dealing = Dealing(NAMES, [ME], self.ledger.entries, self.acked, num_batches)
        self.ledger.entries.update(self.dealing.round(self.ledger.entries))

    def take(self, count: int) -> list[int]:
        named = [self.supply.next() for _ in range(count)]
        return [each.batch for each in named if each is not None]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def waiting(bench: Bench) -> tuple[threading.Thread, list[Any]]:
    """Start a thread that asks for the next batch; the list gets what it is given, or what is raised."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(bench.supply.next())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    until(lambda: NAMES.ask(ME) in bench.ledger.entries or bench.ledger.error is not None, "it asks")
    return thread, found


def test_it_asks_before_it_needs_more(bench: Bench) -> None:
    thread, found = waiting(bench)
    bench.deal()
    thread.join()
    assert found == [(0, 0)]
    taken = []
    for _ in range(50):
        bench.deal()
        taken += bench.take(1)
    assert taken == list(range(1, 51))
    # The faster it is, the more it asks for, so that it seldom writes.
    assert bench.ledger.written < 20


def test_places_count_up_whatever_the_batches_are(bench: Bench) -> None:
    bench.acked = Acked([8, 9, 2, 11, 12, 5, 6, 7])
    thread, found = waiting(bench)
    bench.deal()
    thread.join()
    assert [*found, bench.supply.next(), bench.supply.next()] == [(0, 2), (1, 5), (2, 6)]


@pytest.mark.parametrize("closed", [False, True])
def test_it_asks_again_if_an_earlier_session_has_asked_since(bench: Bench, closed: bool) -> None:
    thread, found = waiting(bench)
    bench.ledger.write({NAMES.ask(ME): {"token": "an earlier one", "total": 9, "closed": closed}})
    until(lambda: bench.ledger.entries[NAMES.ask(ME)]["token"] == "token", "it asks again")
    bench.deal()
    thread.join()
    assert found == [(0, 0)]


def change(name: str, value: Any) -> Callable[[Bench], None]:
    return lambda bench: bench.ledger.write({name: value})


def gone(bench: Bench) -> None:
    bench.silent = 10.0


def unanswered(bench: Bench) -> None:
    bench.supply._answered_at -= 10.0
    bench.ledger.error = tf.errors.UnavailableError(None, None, "connection refused")


@pytest.mark.parametrize(
    ("event", "error", "said"),
    [
        (change("run", {**RUN, "id": "another"}), tf.errors.AbortedError, "worker 1 is no longer part of this run"),
        (lambda bench: bench.ledger.entries.clear(), tf.errors.AbortedError, "is no longer part of this run"),
        (change(NAMES.fence(ME), "another"), tf.errors.AbortedError, "the others have been given its batches"),
        (change("run", {**RUN, "state": "ended"}), ClusterError, "the chief has ended the run without this worker"),
        (
            change("run", {**RUN, "state": "failed", "why": "ResumeError: seed"}),
            ClusterError,
            "worker 1: worker 0 could not begin again: ResumeError: seed",
        ),
        (
            change(NAMES.deal, {"run": "run", "state": "failed", "why": "KeyError: 3"}),
            ClusterError,
            "worker 1: the chief cannot hand out batches any more: KeyError: 3",
        ),
        (gone, ClusterError, "hands out, and worker 0 has been silent for 10 s. Restart it, or see its log."),
        (unanswered, ClusterError, "and ps 0 has been silent for 10 s"),
    ],
)
def test_a_wait_that_is_in_vain_ends(
    bench: Bench, event: Callable[[Bench], None], error: type[Exception], said: str
) -> None:
    thread, found = waiting(bench)
    event(bench)
    thread.join()
    assert isinstance(found[0], error) and said in str(found[0])


def test_the_end_and_a_stop_end_the_wait(bench: Bench) -> None:
    thread, found = waiting(bench)
    # That of an earlier run is none.
    bench.ledger.write({NAMES.deal: {"run": "before", "state": "over", "why": ""}})
    bench.ledger.write({NAMES.deal: {"run": "run", "state": "over", "why": ""}})
    thread.join()
    del bench.ledger.entries[NAMES.deal], bench.ledger.entries[NAMES.ask(ME)]
    bench.supply._asked = 0
    thread, others = waiting(bench)
    bench.supply.stop()
    thread.join()
    assert found == others == [None]


def test_a_server_that_does_not_answer_for_a_moment_is_asked_again(bench: Bench) -> None:
    bench.ledger.error = tf.errors.UnavailableError(None, None, "connection refused")
    thread, found = waiting(bench)
    bench.ledger.error = None
    until(lambda: NAMES.ask(ME) in bench.ledger.entries, "it asks")
    bench.deal()
    thread.join()
    assert found == [(0, 0)]
    bench.ledger.error = tf.errors.UnavailableError(None, None, "connection refused")
    assert bench.take(2) == [1, 2], "what it has been given needs no server"


def test_what_a_failed_step_has_lost_comes_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply_module, "_LOST_SECS", 0.0)
    thread, _ = waiting(bench)
    bench.deal(3)
    thread.join()
    assert bench.take(2) == [1, 2]
    bench.acked = Acked([0, 4, 5])
    bench.staged = 1
    bench.supply.step_failed()
    thread, found = waiting(bench)
    assert not found, "a batch that is staged is not lost"
    bench.staged = 0
    thread.join()
    assert found == [(3, 0)]


def test_what_it_gives_back_it_cannot_take(bench: Bench) -> None:
    thread, _ = waiting(bench)
    bench.deal()
    thread.join()
    bench.supply.give_back()
    bench.supply.give_back()
    assert bench.ledger.entries[NAMES.ask(ME)]["closed"]
    assert bench.take(1) == []


def test_it_gives_back_in_the_thread_that_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the garbage collector closed the session there."""
    read = bench.ledger.read

    def collected(names: Sequence[str] | None = None) -> dict[str, Any]:
        bench.supply.give_back()
        return read(names)

    monkeypatch.setattr(bench.ledger, "read", collected)
    thread = threading.Thread(target=bench.supply.next, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and bench.ledger.entries[NAMES.ask(ME)]["closed"]


def test_a_skip_that_the_fence_refuses_begins_again(bench: Bench) -> None:
    bench.supply.skip(3)
    assert bench.skipped == [3]

    def refuse(batch: int) -> None:
        raise tf.errors.InvalidArgumentError(None, None, "worker 1 is no longer part of this run")

    bench.supply._skip = refuse
    with pytest.raises(tf.errors.AbortedError):
        bench.supply.skip(3)


def test_a_dealer_that_fails_tells_the_workers() -> None:
    cluster = Cluster({"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}, "worker", 0)
    ledger = Ledger()

    def read() -> None:
        raise KeyError(3)

    member: Any = SimpleNamespace(layout=cluster.layout, ledger=ledger, read=read, run_id="run")
    dealer = Dealer(member, "train", "train/position", 5)
    dealer.start()
    until(lambda: NAMES.deal in ledger.entries, "it says so")
    dealer.stop()
    assert ledger.entries[NAMES.deal] == {"run": "run", "state": "failed", "why": "KeyError: 3"}


def test_the_dealer_of_an_earlier_run_deals_nothing() -> None:
    cluster = Cluster({"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}, "worker", 0)
    ledger, asked = Ledger(), threading.Semaphore(0)

    def leads(entries: dict[str, Any], run_id: str) -> bool:
        asked.release()
        return bool(entries["run"]["id"] == run_id)

    member: Any = SimpleNamespace(
        layout=cluster.layout, ledger=ledger, read=ledger.read, leads=leads, run_id="an earlier one"
    )
    dealer = Dealer(member, "train", "train/position", 5)
    dealer.start()
    for _ in range(3):
        assert asked.acquire(timeout=60), "it goes on: its run may not be initialized yet"
    dealer.stop()
    assert ledger.written == 0
