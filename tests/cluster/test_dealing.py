"""How the batches of a source are dealt out among workers that ask, consume, stand still, die and come back."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from slow import examples, with_slow

from staging_tf1.cluster.dealing import Dealing, Names
from staging_tf1.graph.acked import Acked

WORKERS = ("worker 0", "worker 1", "worker 2")
NAMES = Names("train")


@given(st.integers(1, 9), st.permutations(range(30)), st.data())
def test_acknowledgements_may_come_in_any_order_within_the_window_and_twice(
    window: int, wanted: list[int], data: st.DataObject
) -> None:
    acked = Acked.first(0, window)
    done: set[int] = set()
    for batch in wanted:
        if not acked.base <= batch < acked.base + window:
            continue
        for again in (batch, *data.draw(st.lists(st.sampled_from([batch, *done]), max_size=2))):
            acked.cells[again % window] = max(acked.cells[again % window], again + window)
        done.add(batch)
        assert acked.is_valid
        assert acked.base == min(set(range(31)) - done)
        assert acked.end == max(done) + 1
        assert acked.unacked(32) == sorted(set(range(32)) - done)
        assert acked.ahead == sum(each > acked.base for each in done)
        assert {each for each in range(31) if acked.has(each)} == done


@given(st.integers(0, 40), st.integers(1, 9))
def test_the_first_batches(batches: int, window: int) -> None:
    acked = Acked.first(batches, window)
    assert acked.is_valid and (acked.base, acked.end, acked.ahead) == (batches, batches, 0)


@pytest.mark.parametrize("cells", [[], [[0]], [1, 0], [0, -1], [0, 2]])
def test_a_damaged_vector_is_found(cells: Any) -> None:
    assert not Acked(cells).is_valid


class Worker:
    """A worker's process, as far as the dealer can see it."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.left: list[int] = []
        self.given = self.asked = 0
        self.silent = False


class Cluster(RuleBasedStateMachine):
    """The ledger and the variable of a parameter server, workers, and a chief that deals."""

    @initialize(num_batches=st.integers(0, 40), window=st.integers(1, 16))
    def begin(self, num_batches: int, window: int) -> None:
        self.num_batches = num_batches
        self.cells = np.arange(window)
        self.ledger: dict[str, Any] = {}
        self.workers = {name: Worker() for name in WORKERS}
        self.dealing: Dealing | None = None
        self.trained: Counter[int] = Counter()
        self.tokens = 0
        # What steps that have passed the fence acknowledge next, and whether a round has begun since.
        self.in_flight: list[tuple[int, bool]] = []
        self.save()
        for name in WORKERS:
            self.join(name)
            self.ask(name, 3)
        self.round(dies=False)

    @rule(name=st.sampled_from(WORKERS))
    def join(self, name: str) -> None:
        """A process starts, or begins again. An earlier one of this worker may be forgotten."""
        self.tokens += 1
        self.workers[name] = Worker(str(self.tokens))
        self.ledger[NAMES.fence(name)] = str(self.tokens)

    @rule(name=st.sampled_from(WORKERS))
    def die(self, name: str) -> None:
        self.workers[name] = Worker()
        self.workers[name].silent = True

    @rule(name=st.sampled_from(WORKERS), silent=st.booleans())
    def stand_still_or_continue(self, name: str, silent: bool) -> None:
        self.workers[name].silent = silent

    @rule(name=st.sampled_from(WORKERS), more=st.integers(1, 12))
    def ask(self, name: str, more: int) -> None:
        self.receive(name)
        worker = self.workers[name]
        if worker.token:
            worker.asked = max(worker.asked, worker.given + more)
            self.ledger[NAMES.ask(name)] = {"token": worker.token, "total": worker.asked, "closed": False}

    @rule(name=st.sampled_from(WORKERS))
    def close(self, name: str) -> None:
        worker = self.workers[name]
        if worker.token:
            self.ledger[NAMES.ask(name)] = {"token": worker.token, "total": 0, "closed": True}
            self.workers[name] = Worker()

    def receive(self, name: str) -> None:
        worker, entry = self.workers[name], self.ledger.get(NAMES.lease(name))
        if worker.token and entry is not None and entry["token"] == worker.token:
            for before, first, end in entry["spans"]:
                if before >= worker.given:
                    worker.left += range(first, end)
            worker.given = entry["given"]

    @rule(name=st.sampled_from(WORKERS), steps=st.integers(1, 5))
    def step(self, name: str, steps: int) -> None:
        self.receive(name)
        worker = self.workers[name]
        for _ in range(min(steps, len(worker.left))):
            if self.ledger.get(NAMES.fence(name)) != worker.token:
                self.workers[name] = Worker()
                return
            batch = worker.left.pop(0)
            self.trained[batch] += 1
            self.in_flight.append((batch, False))

    @rule()
    def acknowledge(self) -> None:
        if self.in_flight:
            self._land(self.in_flight.pop(0)[0])

    def _land(self, batch: int) -> None:
        cell = batch % self.cells.size
        self.cells[cell] = max(self.cells[cell], batch + self.cells.size)

    @rule()
    def kill_the_chief(self) -> None:
        self.dealing = None

    @rule()
    def save(self) -> None:
        """The chief saves a checkpoint, between two steps of all workers."""
        while self.in_flight:
            self.acknowledge()
        self.saved = self.cells.copy(), self.trained.copy()

    @rule()
    def kill_the_server(self) -> None:
        """The chief restores the checkpoint, and begins another run."""
        cells, trained = self.saved
        self.cells, self.trained = cells.copy(), trained.copy()
        self.ledger, self.in_flight, self.dealing = {}, [], None

    @rule()
    def rounds(self) -> None:
        self.round(dies=False)
        self.round(dies=False)

    @rule(dies=st.booleans())
    def round(self, dies: bool) -> None:
        """A round of the dealer, which may die before it has written."""
        for batch, old in self.in_flight:
            if old:
                self._land(batch)
        self.in_flight = [(batch, True) for batch, old in self.in_flight if not old]
        entries = dict(self.ledger)
        if self.dealing is None:
            self.dealing = Dealing(NAMES, WORKERS, entries, Acked(self.cells.copy()), self.num_batches)
        for name in self.dealing.leaving(entries, [name for name in WORKERS if self.workers[name].silent]):
            del self.ledger[NAMES.fence(name)], entries[NAMES.fence(name)]
        acked = Acked(self.cells)
        self.dealing.note([batch for batch in self.dealing.held if acked.has(batch)])
        written = self.dealing.round(entries)
        if dies:
            self.dealing = None
        else:
            self.ledger.update(written)

    @invariant()
    def nothing_is_trained_twice(self) -> None:
        assert all(count == 1 for count in getattr(self, "trained", {}).values())

    def teardown(self) -> None:
        """Whatever has happened, three workers that go on get the rest, and the end comes."""
        if not hasattr(self, "ledger"):
            return
        for name in WORKERS:
            self.join(name)
        for _ in range(5 * (self.num_batches + 5)):
            self.round(dies=False)
            for name in WORKERS:
                self.ask(name, 1)
                self.step(name, 2)
            assert self.dealing is not None
            if self.dealing.over:
                break
        assert self.dealing is not None and self.dealing.over
        assert self.trained == Counter(range(self.num_batches))


Cluster.TestCase.settings = settings(max_examples=examples(200) if with_slow() else 60, stateful_step_count=40)
TestEverything = Cluster.TestCase


def test_more_than_the_window_is_never_under_way() -> None:
    entries: dict[str, Any] = {}
    for name in WORKERS:
        entries[NAMES.fence(name)] = name
        entries[NAMES.ask(name)] = {"token": name, "total": 6, "closed": False}
    dealing = Dealing(NAMES, WORKERS, entries, Acked.first(3, 8), None)
    written = dealing.round(entries)
    assert sorted(dealing.held) == list(range(3, 11))
    assert written[NAMES.lease("worker 1")] == {"token": "worker 1", "given": 2, "spans": [(0, 9, 11)]}
    dealing.note([3, 5])
    assert dealing.round(entries) == {
        NAMES.lease("worker 1"): {"token": "worker 1", "given": 3, "spans": [(0, 9, 11), (2, 11, 12)]}
    }


def test_what_was_given_beyond_the_window_waits() -> None:
    # By a dealer that had not heard yet that the chief has restored an old checkpoint.
    entries: dict[str, Any] = {NAMES.lease("worker 0"): {"token": "before", "given": 2, "spans": [[0, 12, 14]]}}
    entries |= {NAMES.fence("worker 1"): "now", NAMES.ask("worker 1"): {"token": "now", "total": 9, "closed": False}}
    dealing = Dealing(NAMES, WORKERS, entries, Acked.first(2, 8), None)
    for _ in range(3):
        dealing.round(entries)
    assert sorted(dealing.held) == list(range(2, 10))
    dealing.note(range(2, 10))
    dealing.round({**entries, NAMES.ask("worker 1"): {"token": "now", "total": 20, "closed": False}})
    assert sorted(dealing.held) == list(range(10, 18))


def test_a_round_takes_time_in_proportion_to_the_workers() -> None:
    # Ten times as many workers take ten times as long, not a hundred times.
    assert round_secs(1000) < 30 * round_secs(100)


def round_secs(workers: int) -> float:
    """Return the CPU time of the fastest round, in which all workers ask for more."""
    names = [f"worker {number}" for number in range(workers)]
    entries: dict[str, Any] = {NAMES.fence(name): name for name in names}
    dealing = Dealing(NAMES, names, entries, Acked.first(0, 8 * workers), None)
    rounds = []
    for total in range(4, 24, 2):
        entries |= {NAMES.ask(name): {"token": name, "total": total, "closed": False} for name in names}
        began = time.thread_time()
        dealing.note(sorted(dealing.held)[: len(dealing.held) // 2])
        dealing.round(entries)
        rounds.append(time.thread_time() - began)
    assert len(dealing.held) == 4 * workers
    return min(rounds[1:])
