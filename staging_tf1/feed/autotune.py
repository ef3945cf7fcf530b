"""`num_threads=AUTOTUNE`: the number of feed threads follows what the steps wait for.

`decide` is a pure function that tries numbers and measures them: a number that does not make the loop faster is taken
back, and is not tried again for a while. tf.data's autotuner trusts a model. Its users see more threads than their CPU
budget, and cannot see the number (TensorFlow issues 62821, 58819).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from staging_tf1.background import Background, Stop
from staging_tf1.cores import usable_cores
from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.producer_run import ProducerRun
from staging_tf1.graph.sink import GetFigures
from staging_tf1.sources import Source

# The time between two decisions. A slow loop takes longer, because a decision needs so many batches.
EVERY_SECS = 1.0
_LEAST_BATCHES = 4
# A source that waits, for a network or a disk, needs more threads than there are cores.
_MOST = 16
# A stream is read by one thread at a time. A second one converts and puts the batch before.
_MOST_OF_STREAM = 2
# Above this share of the time that steps wait, threads are added; below the other one, they may be removed.
_ADD, _REMOVE = 0.05, 0.02
# By how much a loop must get faster to keep more threads. Rounds of an unchanged loop differ by almost as much.
_GAIN = 1.05
# Spare threads when one is removed, because batches take unequally long.
_SPARE = 1.4
# Decisions for which a failed trial is not repeated: at first, and at most (5 s, 5 minutes).
_REST, _LONGEST_REST = 5, 300


class Observation(NamedTuple):
    """What a producer and its steps did in a second or more, under one number of threads."""

    # Batches per second that steps took.
    rate: float
    # The share of the time that steps waited for this input, from 0 to 1.
    waited: float
    # How many threads were in the source, on average.
    busy: float


class State(NamedTuple):
    """The number of threads, and what was tried."""

    number: int = 1
    # The number before the trial that is under way, and the rate with it; 0 if none is.
    before: int = 0
    rate_before: float = 0.0
    # The direction of the last trial that failed, 1 or -1. It is not tried for `rest` more decisions.
    failed: int = 0
    rest: int = 0
    next_rest: int = _REST


def decide(state: State, observed: Observation, most: int) -> State:
    """Return the next state. A pure function.

    Args:
      observed: what happened since the last decision.
      most: the threads that there are.

    >>> state = decide(State(), Observation(rate=40, waited=0.7, busy=1.0), most=16)
    >>> state.number, state.before
    (2, 1)
    >>> decide(state, Observation(rate=80, waited=0.4, busy=2.0), most=16).number
    4
    >>> decide(state, Observation(rate=40, waited=0.7, busy=2.0), most=16).number
    1
    """
    if state.before:
        added = state.number > state.before
        helped = observed.rate >= _GAIN * state.rate_before if added else observed.waited <= _ADD
        if not helped:
            rest = state.next_rest
            return State(state.before, failed=1 if added else -1, rest=rest, next_rest=min(2 * rest, _LONGEST_REST))
        state = state._replace(before=0)
    rest = max(0, state.rest - 1)
    state = state._replace(rest=rest, failed=state.failed if rest else 0)
    number = state.number
    if observed.waited > _ADD and state.failed <= 0:
        number = min(2 * number, most)
    elif observed.waited < _REMOVE and state.failed >= 0 and _SPARE * observed.busy <= number - 1:
        number = max(1, number - 1)
    if number == state.number:
        return state
    return state._replace(number=number, before=state.number, rate_before=observed.rate)


def most_threads(source: object, most: int) -> int:
    """Return how many threads AUTOTUNE may use for a source: the cores, or 16 if there are fewer.

    Args:
      most: those that the argument allows.
    """
    return min(most, max(usable_cores(), _MOST) if isinstance(source, Source) else _MOST_OF_STREAM)


def autotuner(name: str, session: Any, producers: Sequence[ProducerRun], stopping: Stop) -> Background:
    """Return a thread that decides how many feed threads of each producer work, and ends with them.

    Args:
      session: the session that it runs in.
      producers: its producers, all with AUTOTUNE.
      stopping: ends it with them.
    """
    return Background(
        f"feed:{name}:autotune", functools.partial(_watch, session, list(map(_Tuned, producers))), stopping
    )


def _watch(session: Any, tuned: Sequence[_Tuned]) -> Iterator[float]:
    while not all(each.producer.crew.ended for each in tuned):
        # If the session is gone, or its server, there are none. The feed threads find out, and end or wait.
        counts = counts_of([each.producer.sink.sink for each in tuned], session)
        for each in tuned:
            if (count := counts.get(each.producer.sink.sink)) is not None:
                each.decide(count.gets)
        yield EVERY_SECS


class _Tuned:
    """One producer whose number of threads is decided."""

    def __init__(self, producer: ProducerRun) -> None:
        self.producer = producer
        self._state = State()
        # When the observation begins, and the figures then; None before the first reading under this number.
        self._then: tuple[float, GetFigures, float] | None = None

    def decide(self, gets: GetFigures) -> None:
        source_secs = sum(state.source_secs for state in self.producer.states)
        now = time.perf_counter(), gets, source_secs
        if self._then is None:
            self._then = now
            return
        began, before, source_secs_before = self._then
        secs, batches = now[0] - began, gets.batches - before.batches
        if batches < _LEAST_BATCHES:
            return
        busy = (source_secs - source_secs_before) / secs
        observed = Observation(batches / secs, _waited_share(before, gets, secs), busy)
        number, self._then = self._state.number, now
        self._state = decide(self._state, observed, self.producer.producer.num_threads)
        if self._state.number != number:
            self.producer.resize(self._state.number)
            # The area may still be full of what the number before has made.
            self._then = None


def _waited_share(then: GetFigures, now: GetFigures, secs: float) -> float:
    """Return the share of the `secs` between two figures that steps waited."""
    if now.wait_secs is not None:
        return now.waited_share(then, secs)
    # With deterministic ops no step may read the clock. A step that finds nothing waits; for how long is a guess.
    taken = now.batches - then.batches
    found = now.occupancy * now.batches - then.occupancy * then.batches
    return 0.5 * max(0.0, 1 - found / taken)
