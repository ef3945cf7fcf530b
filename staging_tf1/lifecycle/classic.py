"""Keeps the loop of the classic recipe, `sess.run([got, put])`, from losing a batch at the end of the data.

At the end of the data the put fails, and TensorFlow fails the whole step. Its get may have taken an element by then,
which is lost. So a run that puts into a plain area first looks at the feed queue behind the put. If the queue holds
enough, the run cannot meet the end. If not, the values of the put are computed first, in a separate run, and then fed.
If that run meets the end, the step has taken nothing, and the area can still be drained.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import fast_callable, tf
from staging_tf1.errors import LeftoverWarning, warn
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.feeding import Feeding
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.sink_run import SinkRun
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.classic import ClassicArea, Dequeue, Filler, classic_areas, needs_of, takers, takes_of
from staging_tf1.graph.dependencies import ops_of_run
from staging_tf1.graph.sink import queue_key
from staging_tf1.lifecycle.timed import TimedRuns

# The names of the put ops of one group.
_Puts = frozenset[str]


@dataclass(frozen=True, eq=False)
class _Group:
    """Puts of one run that share dequeues."""

    puts: _Puts
    dequeues: dict[str, Dequeue]
    # The tensors to compute and then feed.
    cut: tuple[Any, ...]


class _AreaUse(NamedTuple):
    """What one run does with the plain areas."""

    puts: frozenset[str]
    groups: Sequence[_Group]
    # Reads how many elements the queues behind the puts hold.
    sizes: Callable[[], Sequence[Any]]
    # How many elements they need for no put to meet the end.
    needs: Sequence[int]
    # How many elements the run may take from each; None if that is unknown.
    takes: Sequence[int] | None
    # The areas that the run takes from but does not put into.
    drained: Sequence[ClassicArea]

    @property
    def may_take(self) -> bool:
        return bool(self.groups) or self.takes is None


class _Margin:
    """How many more runs of one use are safe: the queues held enough for them when they were last read.

    Reading them costs a run, which waits while a put copies into a queue. Thread-safe.
    """

    def __init__(self) -> None:
        self._use: _AreaUse | None = None
        self._runs = 0
        # How many runs that may take have begun, but not ended.
        self._under_way = 0
        self._lock = threading.Lock()

    def begin(self, use: _AreaUse) -> bool:
        """Begin a run. Return whether the queues hold enough for it."""
        with self._lock:
            self._under_way += 1
            if self._use is use and self._runs > 0:
                self._runs -= 1
                return True
            self._use, self._runs = use, 0
            # Under the lock, so that no other run begins and takes meanwhile.
            spare = [int(size) - need for size, need in zip(use.sizes(), use.needs, strict=True)]
            if use.takes is not None and self._under_way == 1:
                self._runs = max(0, min(left // max(1, take) for left, take in zip(spare, use.takes, strict=True)))
            return min(spare) >= 0

    def begin_other(self, run: Run) -> None:
        with self._lock:
            self._under_way += 1
            self._use, self._runs = None, 0

    def end(self, run: Run, error: BaseException | None = None) -> None:
        with self._lock:
            self._under_way -= 1


class ClassicLoops(Handler):
    """Handles the plain areas of one session that are filled from feed queues.

    Args:
      feeding: what runs in the session. Areas on a server are not handled.
      pipelines: the pipelines of its graph, started.
      timed: times the runs of the session.
    """

    def __init__(self, feeding: Feeding, pipelines: Sequence[Pipeline], timed: TimedRuns) -> None:
        session = feeding.session
        self._session, self._timed = session, timed
        self._queues = _queues(feeding)
        areas = [] if session.sess_str else plain_areas(session.graph, pipelines)
        areas = [area for area in areas if isinstance(area, StagingArea)]
        self._areas = classic_areas(session.graph, areas, _ends_with(self._queues, pipelines)) if areas else []
        self._takes: dict[_Puts, Callable[..., Any]] = {}
        # Values taken for puts whose run then met the end of another queue.
        self._held: dict[_Puts, deque[list[Any]]] = defaultdict(deque)
        self._ended = False
        # How many runs with these puts are under way.
        self._putting: Counter[_Puts] = Counter()
        self._lock = threading.Lock()
        fillers = [filler for classic in self._areas for filler in classic.fillers]
        self._taken_from = {dequeue.queue for filler in fillers for dequeue in filler.dequeues.values()}
        # A chained feed thread takes unseen.
        self._takes_unseen = any(producer.chained for pipeline in pipelines for producer in pipeline.producers)
        self._margin = _Margin()

    def stage(self, look: Look) -> Stage | None:
        puts = frozenset(name for classic in self._areas for name in classic.puts if name in look.ops)
        drained = [
            classic for classic in self._areas if classic.gets & look.ops.keys() and not classic.puts & look.ops.keys()
        ]
        taking = takers(look.graph, self._taken_from) & look.ops.keys()
        if not (puts or drained):
            # It has no ops if they are unknown.
            may_take = taking or not look.ops
            margin = self._margin
            return Stage(margin.begin_other, margin.end, margin.end) if self._areas and may_take else None
        groups = self._groups(look)
        dequeues = {name: dequeue for group in groups for name, dequeue in group.dequeues.items()}
        needs, most = needs_of(dequeues.values()), takes_of(dequeues.values())
        sizes = self._reader([self._queues[queue].sink.size for queue in needs]) if needs else tuple
        is_all = taking <= dequeues.keys() and not self._takes_unseen
        takes = tuple(most[queue] for queue in needs) if is_all else None
        use = _AreaUse(puts, groups, sizes, tuple(needs.values()), takes, drained)
        ended = partial(self._ended_run, use)
        whole = (
            f"{self._areas[0].area} is filled from a queue of feed threads. At the end of the data its values are fed "
            f"to the run. Fetch all of them in one run()."
        )
        return Stage(partial(self._before, use), ended, ended, whole)

    def _before(self, use: _AreaUse, run: Run) -> None:
        """Take what the puts of a run need first, if they could meet the end of the data.

        Raises:
          tf.errors.OutOfRangeError: the run's put would meet the end of the data, or its get would wait forever.
        """
        try:
            if not self._cannot_end(use, run):
                run.add((), self._taken_first(use))
            else:
                for classic in use.drained:
                    self._refuse_if_over(classic)
        except BaseException:
            self._end(use, run)
            raise
        with self._lock:
            self._putting[use.puts] += 1

    def _cannot_end(self, use: _AreaUse, run: Run) -> bool:
        """Begin a run. Return whether the queues hold enough for all its puts, and no values for them are held here."""
        if use.groups and not any(map(self._held.get, [group.puts for group in use.groups])):
            return self._margin.begin(use)
        if use.may_take:
            self._margin.begin_other(run)
        return not use.groups

    def _ended_run(self, use: _AreaUse, run: Run, error: BaseException | None = None) -> None:
        self._end(use, run)
        with self._lock:
            self._putting[use.puts] -= 1

    def _end(self, use: _AreaUse, run: Run) -> None:
        if use.may_take:
            self._margin.end(run)

    def close(self) -> None:
        """See base class. Warns, once, of areas that still hold elements after the end of the data."""
        ended, self._ended = self._ended, False
        for classic in self._areas if ended else ():
            held = sum(len(batches) for puts, batches in self._held.items() if classic.puts & puts)
            left = int(self._reader([classic.area.size_op()])()[0]) + held
            if left:
                warn(
                    f"{classic.area}: the input has ended, and no step has taken the last {left} element(s). After the "
                    f"OutOfRangeError of the run that puts, run the get alone until it raises OutOfRangeError, too. "
                    f"staged() does this itself.",
                    LeftoverWarning,
                )

    def _taken_first(self, use: _AreaUse) -> dict[Any, Any]:
        """Take the values that the puts of the run need. At the end of the data it takes nothing and raises."""
        taken: list[list[Any]] = []
        try:
            for group in use.groups:
                taken.append(self._next(group))
        except tf.errors.OutOfRangeError:
            for group, values in zip(use.groups, taken):
                self._held[group.puts].appendleft(values)
            queues = {dequeue.queue for group in use.groups for dequeue in group.dequeues.values()}
            self._ended = not any(self._queues[queue].cancelled for queue in queues)
            raise
        # A step that fails loses what it was fed, just as a step that dequeues for itself.
        return {tensor: value for group, values in zip(use.groups, taken) for tensor, value in zip(group.cut, values)}

    def _next(self, group: _Group) -> list[Any]:
        try:
            return self._held[group.puts].popleft()
        except IndexError:
            pass
        if group.puts not in self._takes:
            self._takes[group.puts] = fast_callable(self._session, feeds=(), targets=(), fetches=group.cut)
        with self._timed.waits(list(group.cut)):
            values = self._takes[group.puts]()
        return [np.asarray(value, tensor.dtype.as_numpy_dtype) for tensor, value in zip(group.cut, values, strict=True)]

    def _refuse_if_over(self, classic: ClassicArea) -> None:
        """Raise OutOfRangeError if a get would wait forever: the area is empty, and nothing can fill it."""
        needs = [needs_of(filler.dequeues.values()) for filler in classic.fillers]
        queues = list(dict.fromkeys(queue for need in needs for queue in need))
        if not classic.ends_with_its_queues or not all(self._queues[queue].over for queue in queues):
            return
        with self._lock:
            if any(runs and puts & classic.puts for puts, runs in self._putting.items()):
                return
        sizes = [self._queues[queue].sink.size for queue in queues]
        held, *sizes = self._reader([classic.area.size_op(), *sizes])()
        left = dict(zip(queues, map(int, sizes), strict=True))
        if int(held) or any(all(left[queue] >= count for queue, count in need.items()) for need in needs):
            return
        names = ", ".join(f"'{self._queues[queue].sink.name}'" for queue in queues)
        raise tf.errors.OutOfRangeError(None, None, f"End of data: {classic.area} is empty, and {names} has ended.")

    def _reader(self, tensors: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        """Return a callable for the values of `tensors`, which must not wait."""
        return fast_callable(self._session, feeds=(), targets=(), fetches=tensors, in_caller_thread=True)

    def _groups(self, look: Look) -> list[_Group]:
        fillers = [filler for classic in self._areas for filler in classic.fillers if filler.put in look.ops]
        fillers = [
            filler for filler in fillers if filler.dequeues.keys() & look.ops.keys()
        ]  # otherwise the user feeds the values
        cut = [tensor for filler in fillers for tensor in filler.cut]
        behind = ops_of_run(look.graph, look.fetches, look.fed, cut)
        # A run that needs a dequeue for something else would dequeue a second time.
        return _grouped([filler for filler in fillers if not filler.dequeues.keys() & behind.keys()])


def _grouped(fillers: Iterable[Filler]) -> list[_Group]:
    """Group the puts that share a dequeue: all of them get its element."""
    groups: list[_Group] = []
    for filler in fillers:
        joined = _Group(frozenset([filler.put]), filler.dequeues, filler.cut)
        for group in [other for other in groups if other.dequeues.keys() & filler.dequeues.keys()]:
            groups.remove(group)
            cut = {tensor.name: tensor for tensor in (*group.cut, *joined.cut)}
            joined = _Group(joined.puts | group.puts, {**group.dequeues, **joined.dequeues}, tuple(cut.values()))
        groups.append(joined)
    return groups


def _queues(feeding: Feeding) -> dict[str, SinkRun]:
    """Return the queues that feed threads fill, including token queues, by the name of the op."""
    # Several towers are kept in step by the tower barrier.
    sinks = [run.sinks[0] for run in feeding.runs.values() if len(run.sinks) == 1]
    return {queue_key(sink.sink.queue): sink for sink in sinks}


def _ends_with(queues: Iterable[str], pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Map each feed queue, and the grant queue of its hand-shake, to the name of that feed queue."""
    grants = {
        queue_key(sink.put.handshake.grants): queue_key(sink.queue)
        for pipeline in pipelines
        for sink in pipeline.sinks
        if sink.put.handshake is not None
    }
    return {queue: queue for queue in queues} | grants


def plain_areas(graph: Any, pipelines: Iterable[Pipeline]) -> list[Any]:
    """Return the areas that belong to no pipeline."""
    staged = {id(sink.area) for pipeline in pipelines for sink in pipeline.sinks}
    return [area for area in areas_of(graph) if id(area) not in staged]
