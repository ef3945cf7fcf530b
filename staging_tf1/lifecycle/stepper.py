"""`make_stepper`: a step as a fast callable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staging_tf1._tf import fast_callable, plain_callable, run_unwrapped, tf
from staging_tf1.feed.chain import Chain
from staging_tf1.graph.dependencies import ancestors, calls_functions, elements_of
from staging_tf1.lifecycle.steps import NO_TURN, Steps


def make_stepper(steps: Steps, fetches: Any, feed_list: Sequence[Any] | None) -> Callable[..., Any]:
    """Return a callable of the values of `feed_list` that runs `fetches` as a step."""
    chain = steps.chain
    plain = plain_callable(chain.session, fetches, feed_list or None)
    in_turn = steps.in_turn(fetches, feed_list)
    if feed_list:
        # TensorFlow's callable goes through the session's run, which enters the chain.
        def run(*values: Any) -> Any:
            with in_turn:
                return plain(*values)

        return run
    plan, call = chain.plan(fetches, None), _Call(chain, fetches, plain).run
    if in_turn is NO_TURN:
        return lambda: chain.execute(plan, fetches, None, call)

    def step() -> Any:
        with in_turn:
            return chain.execute(plan, fetches, None, call)

    return step


# For a run of the user's: within the operation timeout of the session's config.
_AS_CONFIGURED = tf.RunOptions()


class _Call:
    """Runs fetches, alone or with puts and feeds. There is one callable for each set of these."""

    def __init__(self, chain: Chain, fetches: Any, plain: Callable[[], Any]) -> None:
        self._chain, self._fetches, self._plain = chain, fetches, plain
        # In the order of `tf.nest`, which sorts the keys of a dict: it also packs the values.
        graph, leaves = chain.session.graph, tf.nest.flatten(fetches)
        elements = [element for leaf in leaves for element in elements_of(graph, leaf)]
        self._is_tensor = [not isinstance(element, tf.Operation) for element in elements]
        self._tensors = list(itertools.compress(elements, self._is_tensor))
        self._ops = [element for element in elements if isinstance(element, tf.Operation)]
        self._is_list = fetches.__class__ is list and not any(map(tf.nest.is_nested, fetches))
        # Only the session's run can fetch a SparseTensor.
        self._is_fast = not any(map(_is_composed, leaves))
        # These callables have executors of their own, in which functions draw their random numbers from the beginning.
        self._calls_functions = calls_functions(ancestors(elements))
        self._callables: dict[tuple[str, ...], Callable[..., Any]] = {}

    def run(self, puts: Sequence[Any], feeds: Mapping[Any, Any] | None) -> Any:
        """Return the values of the fetches."""
        feeds, alone = feeds or {}, not (puts or feeds)
        if alone and not (self._is_fast and not self._calls_functions):
            return self._plain()
        # Only the session's run can fetch a tensor that is fed.
        if not self._is_fast or any(tensor is fed for tensor in self._tensors for fed in feeds):
            return run_unwrapped(self._chain.session, [self._fetches, puts], feeds, _AS_CONFIGURED)[0]
        names = () if alone else tuple([tensor.name for tensor in (*puts, *feeds)])
        call = self._callables.get(names)
        if call is None:
            call = self._callables[names] = fast_callable(
                self._chain.session,
                feeds=list(feeds),
                targets=[*self._ops, *puts],
                fetches=self._tensors,
                as_configured=True,
            )
        results = iter(call(*feeds.values()))
        values = [next(results) if is_tensor else None for is_tensor in self._is_tensor]
        return values if self._is_list else tf.nest.pack_sequence_as(self._fetches, values)


def _is_composed(fetch: Any) -> bool:
    return isinstance(fetch, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices)
