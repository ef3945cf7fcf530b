"""`num_threads=AUTOTUNE`: the number of feed threads follows what the steps wait and what the source costs.

`decide` is a pure function. A model of source time over step time proposes a number, and a measurement decides: a
number that does not make the loop faster is taken back, and is not tried again for a while. tf.data's autotuner trusts
its model. Its users see more threads than their CPU budget, and cannot see the number (TensorFlow issues 62821, 58819).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from staging_tf1.background import Background, Stop
from staging_tf1.cores import usable_cores
from staging_tf1.feed.counts import counts_of
from staging_tf1.feed.lock_probe import lock_probe_of
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.producer_run import ProducerRun
from staging_tf1.graph.get_stats import GetFigures
from staging_tf1.sources import Source

# The time between two decisions.
EVERY_SECS = 0.5
# A source that waits, for a network or a disk, needs more threads than there are cores.
_MOST = 16
# A stream is read by one thread at a time. A second one converts and puts the batch before.
_MOST_OF_STREAM = 2

# What an observation covers, at most.
_WINDOW_SECS = 2.0
# What an observation must cover to judge a trial; and to remove a thread.
_JUDGE_SECS, _REMOVE_SECS = 0.9, 1.9
_LEAST_BATCHES = 4
# Above this share of the time that steps wait, threads are added; below the other one, they may be removed.
_ADD, _REMOVE = 0.05, 0.02
# By how much a loop must get faster to keep more threads. Rounds of an unchanged loop differ by as much.
_GAIN = 1.03
# Spare source time, because batches take unequally long. Removing a thread needs more of it than adding one.
_SPARE, _SPARE_TO_REMOVE = 1.1, 1.4
# For a source that computes for less than this, passing the GIL from thread to thread costs more than it gains.
_SHORT_SECS = 1e-3
_COMPUTES = 0.25
# Decisions for which a failed trial is not repeated: at first, and at most (5 s, 5 minutes).
_REST, _LONGEST_REST = 10, 600


class Observation(NamedTuple):
    """What a producer and its steps did in the last seconds, under one number of threads."""

    secs: float
    # Taken by steps.
    batches: int
    # The share of the time that steps waited for this input, from 0 to 1.
    waited: float
    # Mean seconds in the source for one batch.
    source_secs: float
    # The share of a core that a thread in the source uses.
    cores: float = 0.0
    # The share of its time in the source during which one thread holds the GIL; None if unknown.
    lock_share: float | None = None

    @property
    def rate(self) -> float:
        """Batches per second."""
        return self.batches / self.secs

    def threads(self, spare: float) -> int:
        """Return how many threads hide the source behind the steps."""
        step_secs = max((1 - self.waited) * self.secs / self.batches, 1e-6)
        return max(1, math.ceil(spare * self.source_secs / step_secs))

    def useful(self, cores: int) -> int:
        """Return how many threads have a core and the GIL when they need them."""
        if self.cores > _COMPUTES and self.source_secs < _SHORT_SECS:
            return 1
        shares = [self.cores / cores, self.lock_share or 0.0]
        return max(1, min(int(1 / share) if share > 1 / 1024 else 1024 for share in shares))


@dataclass(frozen=True)
class State:
    """The number of threads, and what was tried."""

    number: int = 1
    # The number before the trial that is under way, and the batches per second with it; 0 is none.
    before: int = 0
    rate_before: float = 0.0
    # Numbers from the ceiling on did not help; below the floor, steps waited. Both hold for `rest` decisions.
    ceiling: int = 1024
    floor: int = 1
    rest: int = 0
    next_rest: int = _REST


def decide(state: State, observed: Observation, most: int, cores: int) -> State:
    """Return the next state. A pure function.

    Args:
      state: the present one.
      observed: what happened since the last change of the number, at most in the last 2 s.
      most: the threads that there are.
      cores: those that this producer may use.

    >>> state = decide(State(), Observation(1.0, 40, waited=0.7, source_secs=0.02, lock_share=0.0), most=16, cores=2)
    >>> state.number, state.before
    (3, 1)
    >>> decide(state, Observation(1.0, 120, waited=0.0, source_secs=0.02, lock_share=0.0), most=16, cores=2).number
    3
    """
    if state.rest:
        state = replace(state, rest=state.rest - 1)
        if not state.rest:
            state = replace(state, ceiling=1024, floor=1)
    if observed.batches < _LEAST_BATCHES:
        return state
    if state.before:
        return _judge(state, observed) if observed.secs >= _JUDGE_SECS else state
    number = state.number
    if observed.waited > _ADD and (observed.lock_share is not None or observed.secs >= _JUDGE_SECS):
        most = min(most, observed.useful(cores), state.ceiling - 1)
        # At most four times as many: the model does not know how the threads get in each other's way.
        number = min(max(observed.threads(_SPARE), number + 1), 4 * number, most)
        return _try(state, number, observed) if number > state.number else state
    is_idle = observed.waited < _REMOVE and observed.threads(_SPARE_TO_REMOVE) < number
    if is_idle and number > state.floor and observed.secs >= _REMOVE_SECS:
        return _try(state, number - 1, observed)
    return state


def _try(state: State, number: int, observed: Observation) -> State:
    return replace(state, number=number, before=state.number, rate_before=observed.rate)


def _judge(state: State, observed: Observation) -> State:
    kept = replace(state, before=0)
    if state.number > state.before:
        if observed.rate >= _GAIN * state.rate_before:
            return kept
        bounds = {"ceiling": state.number}
    else:
        if observed.waited <= _ADD:
            return kept
        bounds = {"floor": state.before}
    rest = state.next_rest
    kept = replace(kept, number=state.before, rest=rest, next_rest=min(2 * rest, _LONGEST_REST))
    return replace(kept, **bounds)


def most_threads(source: object, most: int) -> int:
    """Return how many threads AUTOTUNE may use for a source: the cores, or 16 if there are fewer.

    Args:
      source: the source.
      most: those that the argument allows.
    """
    return min(most, max(usable_cores(), _MOST) if isinstance(source, Source) else _MOST_OF_STREAM)


class _Totals(NamedTuple):
    at: float
    taken: GetFigures
    made: int
    source_secs: float


class Autotuner:
    """Decides the numbers of one pipeline's feed threads, in a thread that ends with them.

    Args:
      pipeline: the pipeline.
      session: the session that it runs in.
      producers: its producers, all with AUTOTUNE.
      stopping: ends it with them.
    """

    def __init__(self, pipeline: Pipeline, session: Any, producers: list[ProducerRun], stopping: Stop) -> None:
        self._pipeline, self._session, self._lock_probe = pipeline, session, lock_probe_of(session)
        self._tuned = [_Tuned(producer, max(1, usable_cores() // len(producers))) for producer in producers]
        self.thread = Background(f"feed:{pipeline.name}:autotune", self._watch, stopping)

    def _watch(self) -> Iterator[float]:
        self._lock_probe.start()
        yield EVERY_SECS
        while not all(tuned.producer.crew.ended for tuned in self._tuned):
            self._decide()
            yield EVERY_SECS

    def _decide(self) -> None:
        # If the session is gone, or its server, there are none. The feed threads find out, and end or wait.
        counts = counts_of([tuned.producer.sink.sink for tuned in self._tuned], self._session)
        held = self._lock_probe.held_share(self._pipeline)
        for tuned in self._tuned:
            if (count := counts.get(tuned.producer.sink.sink)) is not None:
                tuned.decide(count.gets, held)


class _Tuned:
    """One producer whose number of threads is decided."""

    def __init__(self, producer: ProducerRun, cores: int) -> None:
        self.producer, self._cores = producer, cores
        self._state = State()
        self._totals: deque[_Totals] = deque()
        # The largest number so far: the GIL share is that of all threads since the start.
        self._largest = 1
        producer.resize(1)

    def decide(self, figures: GetFigures, held: float | None) -> None:
        """Decide the number from the figures of the gets and from `held`, the share of the time with a held GIL."""
        self._totals.append(self._now(figures))
        observed = self._observed(held)
        if observed is None:
            return
        before = self._state.number
        self._state = decide(self._state, observed, self.producer.producer.num_threads, self._cores)
        if self._state.number != before:
            self._largest = max(self._largest, self._state.number)
            self.producer.resize(self._state.number)
            self._totals.clear()

    def _now(self, figures: GetFigures) -> _Totals:
        states = self.producer.states
        return _Totals(
            time.perf_counter(),
            figures,
            sum(state.batches for state in states),
            sum(state.source_secs for state in states),
        )

    def _observed(self, held: float | None) -> Observation | None:
        """Return what happened since the last change; None if too little has."""
        totals, now = self._totals, self._totals[-1]
        while len(totals) > 2 and _is_enough(totals[1], now):
            totals.popleft()
        then = totals[0]
        secs, made = now.at - then.at, now.made - then.made
        if not made or not secs:
            return None
        measured = sum(state.measured_secs for state in self.producer.states)
        cpu_secs = sum(state.measured_cpu_secs for state in self.producer.states)
        return Observation(
            secs,
            now.taken.batches - then.taken.batches,
            _waited_share(then.taken, now.taken, secs),
            (now.source_secs - then.source_secs) / made,
            cpu_secs / measured if measured else 0.0,
            None if held is None else held / self._largest,
        )


def _is_enough(then: _Totals, now: _Totals) -> bool:
    """Whether an observation needs nothing from before `then`."""
    return now.at - then.at >= _WINDOW_SECS and now.taken.batches - then.taken.batches >= _LEAST_BATCHES


def _waited_share(then: GetFigures, now: GetFigures, secs: float) -> float:
    """Return the share of the `secs` between two figures that steps waited."""
    if now.wait_secs is not None:
        return now.waited_share(then, secs)
    # With deterministic ops no step may read the clock. A step that finds nothing waits; for how long is a guess.
    taken = now.batches - then.batches
    found = now.occupancy * now.batches - then.occupancy * then.batches
    return 0.5 * max(0.0, 1 - found / taken) if taken else 0.0
