"""The loop of the classic recipe, `sess.run([got, put])` until the end of the data: no batch of it is lost.

At the end of the data the put fails, and TensorFlow fails the whole step: its get may have taken an element by then,
which nobody sees any more. So before a run with a put into a plain area, the feed queue behind it is looked at. If it
holds enough, the run cannot meet the end. If not, the values of the put are computed first, on their own, and then fed:
should that meet the end, the step has taken nothing, and the area can still be drained.
"""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staging_tf1._tf import fast_callable, tf
from staging_tf1.errors import LeftoverWarning
from staging_tf1.feed.feed import Feed
from staging_tf1.feed.sink_run import SinkRun
from staging_tf1.graph.areas import StagingArea, areas_of
from staging_tf1.graph.classic import ClassicArea, Dequeue, Filler, classic_areas, needs_of
from staging_tf1.graph.probes import queue_key
from staging_tf1.lifecycle.clock import StepClock
from staging_tf1.lifecycle.needs import ByFetches, ops_of_run

# The names of the put ops of one group.
_Puts = frozenset[str]


@dataclass(frozen=True, eq=False)
class _Group:
    """Puts of one run that take from the same dequeues."""

    puts: _Puts
    dequeues: dict[str, Dequeue]
    # What to take and then to feed.
    cut: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """What one run does with the areas."""

    puts: frozenset[str] = frozenset()
    groups: tuple[_Group, ...] = ()
    # How many elements the queues behind the puts hold, and must hold so that no put can meet their end.
    sizes: Callable[[], Sequence[Any]] = tuple
    needs: tuple[int, ...] = ()
    # Those that the run takes from and does not put into.
    drained: tuple[ClassicArea, ...] = ()


_NOTHING = Plan()


class ClassicLoops:
    """Looks after the plain areas of one session that are filled from feed queues.

    Args:
      session: a session whose areas live in this process.
      feeds: those of its graph, started.
      clock: knows the session's runs.
    """

    def __init__(self, session: Any, feeds: Sequence[Feed], clock: StepClock) -> None:
        self._session, self._clock = session, clock
        self._queues = _queues(session, feeds)
        areas = [] if session.sess_str else plain_areas(session.graph, feeds)
        areas = [area for area in areas if isinstance(area, StagingArea)]
        self._areas = classic_areas(session.graph, areas, _ends_with(self._queues, feeds)) if areas else []
        self._plans = ByFetches(self._look_up)
        self._takes: dict[_Puts, Callable[..., Any]] = {}
        # What was taken for puts whose run then met the end at another queue.
        self._held: dict[_Puts, deque[list[Any]]] = defaultdict(deque)
        self._ended = False

    def plan(self, fetches: Any, feed_dict: Any | None) -> Plan:
        """What a run of `fetches` does with the areas."""
        return self._plans.of(fetches, feed_dict) if self._areas else _NOTHING

    def before(self, plan: Plan) -> dict[Any, Any]:
        """What a run must be fed in addition.

        Raises:
          tf.errors.OutOfRangeError: its put would meet the end of the data, or its get wait for ever after it.
        """
        if plan.groups and not self._cannot_end(plan):
            return self._taken_first(plan)
        for classic in plan.drained:
            self._refuse_if_over(classic)
        return {}

    def warn_of_leftovers(self) -> None:
        """Says which areas still hold elements after the end of the data."""
        for classic in self._areas if self._ended else ():
            held = sum(len(batches) for puts, batches in self._held.items() if classic.puts & puts)
            left = int(self._reader([classic.area.size_op()])()[0]) + held
            if left:
                warnings.warn(
                    f"{classic.area}: the input has ended, and no step has taken the last {left} element(s). After the "
                    f"OutOfRangeError of the run that puts, run the get alone until it raises OutOfRangeError, too; "
                    f"staged() does that itself.",
                    LeftoverWarning,
                    stacklevel=2,
                )

    def _cannot_end(self, plan: Plan) -> bool:
        """Whether the queues hold enough for all puts of the run, and nothing of theirs is held here."""
        if any(map(self._held.get, [group.puts for group in plan.groups])):
            return False
        return all(int(size) >= need for size, need in zip(plan.sizes(), plan.needs, strict=True))

    def _taken_first(self, plan: Plan) -> dict[Any, Any]:
        """Takes what the puts of the run need; all of it or, at the end of the data, nothing."""
        taken: list[list[Any]] = []
        try:
            for group in plan.groups:
                taken.append(self._next(group))
        except tf.errors.OutOfRangeError:
            for group, values in zip(plan.groups, taken):
                self._held[group.puts].appendleft(values)
            queues = {dequeue.queue for group in plan.groups for dequeue in group.dequeues.values()}
            self._ended = not any(self._queues[queue].cancelled for queue in queues)
            raise
        # A step that fails loses what it was fed, as one that dequeues itself would.
        return {tensor: value for group, values in zip(plan.groups, taken) for tensor, value in zip(group.cut, values)}

    def _next(self, group: _Group) -> list[Any]:
        try:
            return self._held[group.puts].popleft()
        except IndexError:
            pass
        if group.puts not in self._takes:
            call = fast_callable(self._session, feeds=(), targets=(), fetches=group.cut)
            self._takes[group.puts] = self._clock.timed(list(group.cut), call, step=False)
        values = self._takes[group.puts]()
        return [np.asarray(value, tensor.dtype.as_numpy_dtype) for tensor, value in zip(group.cut, values, strict=True)]

    def _refuse_if_over(self, classic: ClassicArea) -> None:
        """Raises where a get would wait for ever: the area is empty, and nothing can fill it any more."""
        needs = [needs_of(filler.dequeues.values()) for filler in classic.fillers]
        queues = list(dict.fromkeys(queue for need in needs for queue in need))
        if not classic.ends_with_its_queues or not all(self._queues[queue].over for queue in queues):
            return
        if any(self._plans.of(run.fetches, run.fed).puts & classic.puts for run in list(self._clock.pending.values())):
            return
        sizes = [self._queues[queue].sink.size for queue in queues]
        held, *sizes = self._reader([classic.area.size_op(), *sizes])()
        left = dict(zip(queues, map(int, sizes), strict=True))
        if int(held) or any(all(left[queue] >= count for queue, count in need.items()) for need in needs):
            return
        names = ", ".join(f"'{self._queues[queue].sink.name}'" for queue in queues)
        raise tf.errors.OutOfRangeError(None, None, f"End of data: {classic.area} is empty, and {names} has ended.")

    def _reader(self, tensors: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        """A callable for the values of `tensors`, which wait for nothing."""
        return fast_callable(self._session, feeds=(), targets=(), fetches=tensors, in_caller_thread=True)

    def _look_up(self, fetches: Any, fed: list[Any]) -> Plan:
        ops = ops_of_run(self._session.graph, fetches, fed)
        puts = frozenset(name for classic in self._areas for name in classic.puts if name in ops)
        fillers = [each for classic in self._areas for each in classic.fillers if each.put in ops]
        fillers = [each for each in fillers if each.dequeues.keys() & ops]  # else the user feeds the values
        behind = ops_of_run(self._session.graph, fetches, fed, [tensor for each in fillers for tensor in each.cut])
        # What the run needs of a dequeue otherwise would make it dequeue once more.
        groups = _grouped([each for each in fillers if not each.dequeues.keys() & behind])
        needs = needs_of(dequeue for group in groups for dequeue in group.dequeues.values())
        sizes = self._reader([self._queues[queue].sink.size for queue in needs]) if needs else tuple
        drained = [classic for classic in self._areas if classic.gets & ops and not classic.puts & ops]
        return Plan(puts, tuple(groups), sizes, tuple(needs.values()), tuple(drained))


def _grouped(fillers: Iterable[Filler]) -> list[_Group]:
    """Puts that share a dequeue in one group: what it gives goes to all of them."""
    groups: list[_Group] = []
    for filler in fillers:
        joined = _Group(frozenset([filler.put]), filler.dequeues, filler.cut)
        for group in [each for each in groups if each.dequeues.keys() & filler.dequeues.keys()]:
            groups.remove(group)
            cut = {tensor.name: tensor for tensor in (*group.cut, *joined.cut)}
            joined = _Group(joined.puts | group.puts, {**group.dequeues, **joined.dequeues}, tuple(cut.values()))
        groups.append(joined)
    return groups


def _queues(session: Any, feeds: Iterable[Feed]) -> dict[str, SinkRun]:
    """The queues that feed threads of `session` fill, those of tokens among them, by the name of the op."""
    # Towers go in rounds, which are asked for by the fetches of the step itself.
    single = [feed for feed in feeds if feed.pipeline is None or len(feed.pipeline.towers) == 1]
    runs = [run for feed in single if (run := feed.run_in(session)) is not None]
    return {queue_key(sink.sink.queue): sink for run in runs for sink in run.sinks}


def _ends_with(queues: Iterable[str], feeds: Iterable[Feed]) -> dict[str, str]:
    """Each feed queue, and what a taker waits for beside it: its turn, which ends when the queue does."""
    turns = {lane.turns: queue_key(lane.sink.queue) for feed in feeds for lane in feed.lanes if lane.turns is not None}
    return {queue: queue for queue in queues} | {queue_key(each.grants): queue for each, queue in turns.items()}


def plain_areas(graph: Any, feeds: Iterable[Feed]) -> list[Any]:
    """The areas that belong to no pipeline."""
    staged = {id(tower.gate.area) for feed in feeds if feed.pipeline for tower in feed.pipeline.towers}
    return [area for area in areas_of(graph) if id(area) not in staged]
