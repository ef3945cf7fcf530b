"""The rounds of several towers, without a session: the batches that may be taken after a series of events."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from staging_tf1.feed.tower_barrier import TowerBarrier

TOWERS = 3
TOWER = st.integers(0, TOWERS - 1)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("staged"), TOWER),
        st.tuples(st.just("end"), TOWER),
        st.tuples(st.just("ask"), st.booleans()),
    ),
    max_size=40,
)


class Towers:
    """Replays events on `TowerBarrier`, and counts the released batches."""

    def __init__(self, towers: int = TOWERS) -> None:
        self.rounds = TowerBarrier(towers)
        self.staged, self.released, self.closed = Counter[int](), Counter[int](), Counter[int]()
        self.ended: set[int] = set()

    def play(self, event: str, argument: int) -> None:
        if event == "staged" and argument not in self.ended:
            self.staged[argument] += 1
            due = self.rounds.staged_one(argument)
        elif event == "end":
            self.ended.add(argument)
            due = self.rounds.end(argument)
        elif event == "ask":
            due = self.rounds.ask(bool(argument))
        else:
            return
        for tower, batches in due:
            assert batches > 0
            self.released[tower] += batches
        self.closed.update(self.rounds.to_close())


@given(EVENTS)
def test_a_tower_never_gets_more_than_was_staged(events: list[tuple[str, int]]) -> None:
    towers = Towers()
    for event in events:
        towers.play(*event)
        assert all(towers.released[tower] <= towers.staged[tower] for tower in range(TOWERS))
        assert towers.rounds.withheld() == [towers.staged[t] - towers.released[t] for t in range(TOWERS)]


@given(EVENTS)
def test_common_steps_get_whole_rounds_only(events: list[tuple[str, int]]) -> None:
    towers = Towers()
    for event, argument in events:
        towers.play(event, False if event == "ask" else argument)
        whole = min(towers.staged[tower] for tower in range(TOWERS))
        assert [towers.released[tower] for tower in range(TOWERS)] == [whole] * TOWERS, "every whole round, no more"


@given(EVENTS)
def test_a_tower_is_closed_once_and_only_when_nothing_of_it_is_left(events: list[tuple[str, int]]) -> None:
    towers = Towers()
    for event in events:
        before = Counter(towers.closed)
        towers.play(*event)
        for tower in towers.closed - before:
            assert tower in towers.ended and towers.released[tower] == towers.staged[tower]
        assert all(count == 1 for count in towers.closed.values())


@given(EVENTS)
def test_towers_that_are_run_alone_get_all_that_is_left(events: list[tuple[str, int]]) -> None:
    towers = Towers()
    for event in events:
        towers.play(*event)
    for tower in range(TOWERS):
        towers.play("end", tower)
    towers.play("ask", True)
    assert towers.released == towers.staged and towers.rounds.withheld() == [0] * TOWERS
    assert set(towers.closed) == set(range(TOWERS))


@given(EVENTS)
def test_a_common_step_is_over_when_an_ended_tower_has_no_round_left(events: list[tuple[str, int]]) -> None:
    towers = Towers()
    for event, argument in events:
        towers.play(event, False if event == "ask" else argument)
        ends = [towers.staged[tower] for tower in towers.ended]
        over = bool(ends) and min(towers.staged[tower] for tower in range(TOWERS)) == min(ends)
        assert towers.rounds.over == over
        if over:
            assert towers.rounds.final == set(range(TOWERS))


def test_a_drain_lets_whole_rounds_go_on_until_one_tower_is_asked_alone() -> None:
    towers = Towers(2)
    towers.rounds.drain()
    towers.play("staged", 0)
    assert not towers.released
    towers.play("staged", 1)
    assert towers.released == {0: 1, 1: 1}
    towers.play("staged", 0)
    assert towers.released[0] == 1
    assert towers.rounds.ask(True) == [(0, 1)]


def test_what_is_withheld_is_released_after_an_uneven_failure_at_the_end() -> None:
    rounds = TowerBarrier(2)
    assert rounds.staged_one(0) == [] and rounds.staged_one(1) == [(0, 1), (1, 1)]
    assert rounds.staged_one(0) == [] and rounds.end(1) == []
    assert rounds.rescue() == [], "no step has failed"
    rounds.note_taken([1, 0])
    assert rounds.rescue() == [(0, 1)], "the next common step may wait for it"
    rounds.note_taken([1, 1])
    assert rounds.withheld() == [0, 0]
