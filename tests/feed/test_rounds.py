"""The rounds of several towers, without a session: the batches that may be taken after a series of events."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from staging_tf1.feed.tower_barrier import TowerBarrier


def test_a_drain_lets_whole_rounds_go_on_until_one_tower_is_asked_alone() -> None:
    rounds = TowerBarrier(2)
    rounds.drain()
    assert rounds.staged_one(0) == [] and rounds.staged_one(1) == [(0, 1), (1, 1)]
    assert rounds.staged_one(0) == []
    assert rounds.expect(True) == [(0, 1)]


def test_what_is_withheld_is_released_after_an_uneven_failure_at_the_end() -> None:
    rounds = TowerBarrier(2)
    assert rounds.staged_one(0) == [] and rounds.staged_one(1) == [(0, 1), (1, 1)]
    assert rounds.staged_one(0) == [] and rounds.end(1) == []
    assert rounds.rescue() == [], "no step has failed"
    rounds.note_taken([1, 0])
    assert rounds.rescue() == [(0, 1)], "the next common step may wait for it"
    rounds.note_taken([1, 1])
    assert rounds.withheld() == [0, 0]


@st.composite
def histories(draw: Any) -> tuple[int, list[tuple[str, Any]]]:
    """How many towers, and all that can happen to them, in any order."""
    towers = draw(st.integers(2, 4))
    tower = st.integers(0, towers - 1)
    events = st.one_of(
        st.tuples(st.just("staged"), tower),
        st.tuples(st.just("staged"), tower),
        st.tuples(st.just("end"), tower),
        st.tuples(st.just("ask"), st.booleans()),
        st.tuples(st.just("drain"), st.none()),
        # Of what has been released, each tower's steps have taken all but so many.
        st.tuples(st.just("note_taken"), st.lists(st.integers(0, 2), min_size=towers, max_size=towers)),
        st.tuples(st.just("rescue"), st.none()),
    )
    return towers, draw(st.lists(events, max_size=40))


class Model:
    """Plays events against a `TowerBarrier`, and knows of each whether it may let a tower go on without the others."""

    def __init__(self, towers: int) -> None:
        self.rounds, self.towers = TowerBarrier(towers), range(towers)
        self.staged, self.released = [0] * towers, [0] * towers
        self.ended: set[int] = set()
        self.closed: list[int] = []
        self.alone = self.rescued = self._draining = self._asked_alone = self._uneven = False

    def play(self, event: str, argument: Any) -> None:
        was_over, due = self.rounds.over, []
        if event == "staged" and argument not in self.ended:
            self.staged[argument] += 1
            due = self.rounds.staged_one(argument)
        elif event == "end" and argument not in self.ended:
            self.ended.add(argument)
            self.alone |= self._asked_alone
            due = self.rounds.end(argument)
        elif event == "ask":
            self._asked_alone = argument
            self.alone |= argument and (self._draining or bool(self.ended))
            due = self.rounds.expect(argument)
        elif event == "drain":
            self._draining = True
            self.rounds.drain()
        elif event == "note_taken":
            taken = [max(0, released - left) for released, left in zip(self.released, argument)]
            self._uneven = len(set(taken)) > 1
            self.rounds.note_taken(taken)
        elif event == "rescue":
            due = self.rounds.rescue()
            rescues = was_over and self._uneven
            assert not due or rescues, "nobody waits for them"
            # From now on, even if nothing was withheld so far.
            self.rescued |= rescues
        for tower, batches in due:
            assert batches > 0
            self.released[tower] += batches
        self.closed += self.rounds.to_close()


@given(histories())
def test_rounds_hold_in_every_history(history: tuple[int, list[tuple[str, Any]]]) -> None:
    towers, events = history
    model = Model(towers)
    for event, argument in events:
        final, before = model.rounds.final, list(model.released)
        model.play(event, argument)
        assert all(released <= staged for released, staged in zip(model.released, model.staged))
        assert all(released >= earlier for released, earlier in zip(model.released, before))
        if not (model.alone or model.rescued):
            assert model.released == [min(model.staged)] * towers, "every whole round, no more"
            assert all(model.released[tower] == before[tower] for tower in final), "it was final"
            ends = [model.staged[tower] for tower in model.ended]
            assert model.rounds.over == (bool(ends) and min(model.staged) == min(ends))
        for tower in range(towers):
            behind = any(model.staged[o] < model.staged[tower] for o in range(towers) if o not in model.ended)
            assert model.rounds.lags_behind(tower) == (behind and not (model.alone or model.rescued))
        if model.alone:
            assert not model.rounds.over
        if not model.rounds.over:
            assert model.rounds.final == {*model.closed}
        assert model.rounds.withheld() == [s - r for s, r in zip(model.staged, model.released)]
        assert len(model.closed) == len(set(model.closed)), "closed twice"
        done = {tower for tower in model.ended if model.staged[tower] == model.released[tower]}
        assert set(model.closed) == done, "all that are ended and empty, and no others"


@given(histories())
def test_after_the_end_everything_staged_is_released_or_withheld(history: tuple[int, list[tuple[str, Any]]]) -> None:
    towers, events = history
    model = Model(towers)
    for event, argument in [*events, *(("end", tower) for tower in range(towers)), ("rescue", None)]:
        model.play(event, argument)
    withheld = model.rounds.withheld()
    assert [r + w for r, w in zip(model.released, withheld)] == model.staged
    if model.alone or model.rescued:
        assert withheld == [0] * towers
    else:
        assert model.rounds.over and model.rounds.final == set(range(towers))
        assert model.released == [min(model.staged)] * towers
    model.play("ask", True)
    assert model.released == model.staged and set(model.closed) == set(range(towers)), "each tower alone gets its rest"
