"""Which towers a run takes from, found by looking up the graph from its fetches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.pipeline import Pipeline
from staging_tf1.graph.source_ops import ancestors


class Needs:
    """Answers for the pipelines of one graph; answers are kept, because loops ask the same again and again."""

    def __init__(self, graph: Any, pipelines: Iterable[Pipeline]) -> None:
        self._graph = graph
        self._gates = {
            tower.gate.token.op.name: (pipeline.name, index)
            for pipeline in pipelines
            for index, tower in enumerate(pipeline.towers)
        }
        self._answers: dict[tuple[tuple[str, ...], frozenset[str]], frozenset[tuple[str, int]]] = {}

    def of(self, fetches: Any, feed_dict: Any | None) -> frozenset[tuple[str, int]]:
        """The (pipeline name, tower) pairs that a run of `fetches` takes a batch from."""
        elements = self._elements(fetches)
        fed = frozenset(tensor.name for tensor in self._elements(list(feed_dict or ())))
        key = (tuple(element.name for element in elements), fed)
        if key not in self._answers:
            found = (self._gates.get(op.name) for op in ancestors(elements, fed))
            self._answers[key] = frozenset(gate for gate in found if gate is not None)
        return self._answers[key]

    def _elements(self, fetches: Any) -> list[Any]:
        return [self._graph.as_graph_element(leaf) for leaf in tf.nest.flatten(fetches, expand_composites=True)]
