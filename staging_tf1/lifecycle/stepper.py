"""The fast path: a step as a callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1._tf import fast_callable, tf
from staging_tf1.lifecycle.clock import StepClock
from staging_tf1.lifecycle.steps import Steps


def make_stepper(
    session: Any, steps: Steps, clock: StepClock, fetches: Any, feed_list: Sequence[Any] | None
) -> Callable[..., Any]:
    """A callable of `feed_list`'s values that runs `fetches`, with all that `steps` does around a step."""
    feeds = list(feed_list or ())
    demand = steps.demand(fetches, feeds)
    alone = steps.alone(demand)
    plain = session.make_callable(fetches, feed_list or None)
    if not feeds:
        # With feeds TensorFlow goes by the session's run, which is timed already.
        plain = clock.timed(fetches, plain)
    putting = _Putting(session, clock, fetches) if not feeds and _is_plain(session.graph, fetches) else None

    def step(*values: Any) -> Any:
        with alone:
            puts, more = steps.before(demand)
            if not (puts or more):
                result = plain(*values)
            elif putting is not None and putting.takes(more):
                result = putting.run(puts, more)
            else:
                result = session.run([fetches, puts], {**dict(zip(feeds, values, strict=True)), **more})[0]
            steps.after()
        return result

    return step


class _Putting:
    """Runs fetches together with further puts and feeds: a callable for each set of them that occurs."""

    def __init__(self, session: Any, clock: StepClock, fetches: Any) -> None:
        self._session, self._clock, self._fetches = session, clock, fetches
        self._elements = _elements(session.graph, fetches)
        self._tensors = [each for each in self._elements if not isinstance(each, tf.Operation)]
        self._ops = [each for each in self._elements if isinstance(each, tf.Operation)]
        self._callables: dict[tuple[str, ...], Callable[..., Any]] = {}

    def takes(self, feeds: dict[Any, Any]) -> bool:
        """Whether nothing that is fed is fetched, too, which only the session's run can do."""
        return not any(tensor is fed for tensor in self._tensors for fed in feeds)

    def run(self, puts: Sequence[Any], feeds: dict[Any, Any]) -> Any:
        names = tuple([each.name for each in (*puts, *feeds)])
        call = self._callables.get(names)
        if call is None:
            call = self._callables[names] = self._make(puts, list(feeds))
        found = iter(call(*feeds.values()))
        values = [None if isinstance(each, tf.Operation) else next(found) for each in self._elements]
        return tf.nest.pack_sequence_as(self._fetches, values)

    def _make(self, puts: Sequence[Any], feeds: Sequence[Any]) -> Callable[..., Any]:
        targets = [*self._ops, *puts]
        call = fast_callable(self._session, feeds=feeds, targets=targets, fetches=self._tensors)
        return self._clock.timed(self._fetches, call)


def _elements(graph: Any, fetches: Any) -> list[Any]:
    return [graph.as_graph_element(leaf) for leaf in tf.nest.flatten(fetches)]


def _is_plain(graph: Any, fetches: Any) -> bool:
    """Whether all that is fetched are tensors and ops: a SparseTensor is put together by the session's run."""
    leaves = tf.nest.flatten(fetches)
    return not any(isinstance(leaf, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices) for leaf in leaves)
