"""`make_stepper`: a step as a fast callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from staging_tf1._tf import fast_callable, tf
from staging_tf1.feed.gated import gated_runs
from staging_tf1.graph.dependencies import elements_of
from staging_tf1.lifecycle.steps import RUN, Steps


def make_stepper(steps: Steps, fetches: Any, feed_list: Sequence[Any] | None) -> Callable[..., Any]:
    """Return a callable of the values of `feed_list` that runs `fetches` as a step."""
    session = steps.session
    plain = session.make_callable(fetches, feed_list or None)
    in_turn = steps.in_turn(fetches, feed_list)
    if feed_list:
        # TensorFlow's callable goes through the session's run, which is wrapped.
        def run(*values: Any) -> Any:
            with in_turn:
                return plain(*values)

        return run
    plain = _gated(session, fetches, plain)
    demand = steps.demand(fetches, None)
    if demand is None:
        return partial(steps.timed.step, RUN, fetches, None, plain)
    call = _Call(steps, fetches, plain).run

    def step() -> Any:
        with in_turn:
            return steps.step(demand, fetches, None, call)

    return step


def _gated(session: Any, fetches: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` as a run of `fetches` that stands still in the pauses of a cluster."""
    gated = gated_runs(session)
    return call if gated is None else gated.call(fetches, call)


class _Call:
    """Runs fetches, alone or with puts and feeds. There is one callable for each set of these."""

    def __init__(self, steps: Steps, fetches: Any, plain: Callable[[], Any]) -> None:
        self._steps, self._fetches, self._plain = steps, fetches, plain
        self._is_fast = _is_plain(fetches)
        # In the order of `tf.nest`, which sorts the keys of a dict: it also packs the values.
        graph = steps.session.graph
        self._elements = [element for leaf in tf.nest.flatten(fetches) for element in elements_of(graph, leaf)]
        self._tensors = [element for element in self._elements if not isinstance(element, tf.Operation)]
        self._ops = [element for element in self._elements if isinstance(element, tf.Operation)]
        self._callables: dict[tuple[str, ...], Callable[..., Any]] = {}

    def run(self, puts: Sequence[Any], feeds: Mapping[Any, Any] | None) -> Any:
        """Return the values of the fetches."""
        if not (puts or feeds):
            return self._plain()
        feeds = feeds or {}
        # Only the session's run can fetch a tensor that is fed.
        if not self._is_fast or any(tensor is fed for tensor in self._tensors for fed in feeds):
            return self._steps.run_session(self._fetches, None, None, puts, feeds)
        names = tuple([tensor.name for tensor in (*puts, *feeds)])
        call = self._callables.get(names)
        if call is None:
            call = self._callables[names] = self._make(puts, list(feeds))
        results = iter(call(*feeds.values()))
        values = [None if isinstance(element, tf.Operation) else next(results) for element in self._elements]
        return tf.nest.pack_sequence_as(self._fetches, values)

    def _make(self, puts: Sequence[Any], feeds: Sequence[Any]) -> Callable[..., Any]:
        session = self._steps.session
        call = fast_callable(session, feeds=feeds, targets=[*self._ops, *puts], fetches=self._tensors)
        return _gated(session, self._fetches, call)


def _is_plain(fetches: Any) -> bool:
    """Whether all fetches are tensors and ops. Only the session's run can fetch a SparseTensor."""
    leaves = tf.nest.flatten(fetches)
    return not any(isinstance(leaf, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices) for leaf in leaves)
