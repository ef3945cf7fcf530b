"""`make_stepper`: a step as a fast callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staging_tf1._tf import fast_callable, plain_callable, run_unwrapped, tf
from staging_tf1.feed.chain import Chain
from staging_tf1.graph.dependencies import elements_of
from staging_tf1.lifecycle.steps import Steps


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
        self._is_fast = _is_plain(fetches)
        # In the order of `tf.nest`, which sorts the keys of a dict: it also packs the values.
        graph = chain.session.graph
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
            return run_unwrapped(self._chain.session, [self._fetches, puts], feeds, _AS_CONFIGURED)[0]
        names = tuple([tensor.name for tensor in (*puts, *feeds)])
        call = self._callables.get(names)
        if call is None:
            call = self._callables[names] = fast_callable(
                self._chain.session, feeds=list(feeds), targets=[*self._ops, *puts], fetches=self._tensors
            )
        results = iter(call(*feeds.values()))
        values = [None if isinstance(element, tf.Operation) else next(results) for element in self._elements]
        return tf.nest.pack_sequence_as(self._fetches, values)


def _is_plain(fetches: Any) -> bool:
    """Whether all fetches are tensors and ops. Only the session's run can fetch a SparseTensor."""
    leaves = tf.nest.flatten(fetches)
    return not any(isinstance(leaf, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices) for leaf in leaves)
