"""`make_stepper`: a step as a fast callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from staging_tf1._tf import fast_callable, tf
from staging_tf1.graph.dependencies import elements_of

if TYPE_CHECKING:
    from staging_tf1.lifecycle.runtime import SessionRuntime


def make_stepper(runtime: SessionRuntime, fetches: Any, feed_list: Sequence[Any] | None) -> Callable[..., Any]:
    """Returns a callable of the values of `feed_list` that runs `fetches` as a step."""
    session, steps = runtime.session, runtime.steps
    if runtime.meaning is not None:
        fetches = runtime.meaning.fetches(fetches, feed_list)
    # Not the session's own, which makes a step in a graph that was staged by itself.
    plain = type(session).make_callable(session, fetches, feed_list or None)
    demand = steps.demand(fetches, feed_list)
    if feed_list:
        # TensorFlow's callable goes through the session's run, which is wrapped.
        in_turn = steps.waiting_for_others(demand)

        def run(*values: Any) -> Any:
            with in_turn:
                return plain(*values)

        return run
    timed = runtime.step_call(fetches, plain)
    if demand is None:
        return timed
    return _stepper(runtime, fetches, demand, timed)


def _stepper(runtime: SessionRuntime, fetches: Any, demand: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    steps = runtime.steps
    alone = steps.waiting_for_others(demand)
    putting = _Putting(runtime, fetches) if _is_plain(fetches) else None

    def run(puts: list[Any], feeds: dict[Any, Any]) -> Any:
        if not (puts or feeds):
            return plain()
        if putting is not None and putting.takes(feeds):
            return putting.run(puts, feeds)
        return runtime.run_step([fetches, puts], feeds)[0]

    def step() -> Any:
        with alone:
            return steps.around(demand, run)

    return step


class _Putting:
    """Runs fetches together with additional puts and feeds, with one callable for each set of them."""

    def __init__(self, runtime: SessionRuntime, fetches: Any) -> None:
        self._runtime, self._fetches = runtime, fetches
        # In the order of `tf.nest`, which sorts the keys of a dict: it also packs the values.
        graph = runtime.session.graph
        self._elements = [each for leaf in tf.nest.flatten(fetches) for each in elements_of(graph, leaf)]
        self._tensors = [each for each in self._elements if not isinstance(each, tf.Operation)]
        self._ops = [each for each in self._elements if isinstance(each, tf.Operation)]
        self._callables: dict[tuple[str, ...], Callable[..., Any]] = {}

    def takes(self, feeds: dict[Any, Any]) -> bool:
        """Whether no tensor is both fed and fetched. Only the session's run can do that."""
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
        call = fast_callable(self._runtime.session, feeds=feeds, targets=targets, fetches=self._tensors)
        return self._runtime.step_call(self._fetches, call)


def _is_plain(fetches: Any) -> bool:
    """Whether all fetches are tensors and ops. Only the session's run can fetch a SparseTensor."""
    leaves = tf.nest.flatten(fetches)
    return not any(isinstance(leaf, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices) for leaf in leaves)
