"""Which towers a run takes from, found by looking up the graph from its fetches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.pipeline import Pipeline
from staging_tf1.graph.source_ops import ancestors

# A loop asks for a few fetches again and again. More than this are made anew for every run, and not worth keeping.
_MOST_ANSWERS = 1000


class Needs:
    """Answers for the pipelines of one graph, and keeps the answers."""

    def __init__(self, graph: Any, pipelines: Iterable[Pipeline]) -> None:
        self._graph = graph
        self._gates = {
            tower.gate.token.op.name: (pipeline.name, index)
            for pipeline in pipelines
            for index, tower in enumerate(pipeline.towers)
        }
        # With each answer the fetches themselves, so that no other object can get their id meanwhile.
        self._answers: dict[Any, tuple[frozenset[tuple[str, int]], Any]] = {}

    def of(self, fetches: Any, feed_dict: Any | None) -> frozenset[tuple[str, int]]:
        """The (pipeline name, tower) pairs that a run of `fetches` takes a batch from."""
        if not self._gates:
            return frozenset()
        fed = list(feed_dict) if feed_dict else []
        # By identity: hashing a tensor costs more, and comparing two can make an op.
        key = (_identity(fetches), _identity(fed))
        known = self._answers.get(key)
        if known is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            known = self._answers[key] = (self._look_up(fetches, fed), (fetches, fed))
        return known[0]

    def _look_up(self, fetches: Any, fed: list[Any]) -> frozenset[tuple[str, int]]:
        names = {element.name for element in self._elements(fed)}
        found = (self._gates.get(op.name) for op in ancestors(self._elements(fetches), names))
        return frozenset(gate for gate in found if gate is not None)

    def _elements(self, fetches: Any) -> list[Any]:
        return [self._graph.as_graph_element(leaf) for leaf in tf.nest.flatten(fetches, expand_composites=True)]


def _identity(fetches: Any) -> Any:
    kind = type(fetches)
    if kind is list or kind is tuple:
        return tuple([_identity(each) for each in fetches])
    if kind is dict:
        return tuple([(name, _identity(each)) for name, each in fetches.items()])
    return fetches if kind is str else id(fetches)
