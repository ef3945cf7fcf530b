"""What a run depends on, found by looking up the graph from its fetches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from staging_tf1._tf import tf
from staging_tf1.graph.pipeline import Pipeline
from staging_tf1.graph.source_ops import ancestors

Answer = TypeVar("Answer")

# A loop asks for a few fetches again and again. More than this are made anew for every run, and not worth keeping.
_MOST_ANSWERS = 1000


class ByFetches(Generic[Answer]):
    """Keeps the answers to a question about the fetches and feeds of a run.

    Args:
      question: called with the fetches and the list of fed tensors.
    """

    def __init__(self, question: Callable[[Any, list[Any]], Answer]) -> None:
        self._question = question
        # With each answer the fetches themselves, so that no other object can get their id meanwhile.
        self._answers: dict[Any, tuple[Answer, Any]] = {}

    def of(self, fetches: Any, feed_dict: Any | None) -> Answer:
        """The answer for a run of `fetches` that feeds the keys of `feed_dict`."""
        fed = list(feed_dict) if feed_dict else []
        # By identity: hashing a tensor costs more, and comparing two can make an op.
        key = (_identity(fetches), _identity(fed))
        known = self._answers.get(key)
        if known is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            known = self._answers[key] = (self._question(fetches, fed), (fetches, fed))
        return known[0]


class Needs:
    """Which towers a run takes a batch from, for the pipelines of one graph."""

    def __init__(self, graph: Any, pipelines: Iterable[Pipeline]) -> None:
        self._graph = graph
        self._gates = {
            tower.gate.token.op.name: (pipeline.name, index)
            for pipeline in pipelines
            for index, tower in enumerate(pipeline.towers)
        }
        self._answers = ByFetches(self._look_up)

    def of(self, fetches: Any, feed_dict: Any | None) -> frozenset[tuple[str, int]]:
        """The (pipeline name, tower) pairs that a run of `fetches` takes a batch from."""
        return self._answers.of(fetches, feed_dict) if self._gates else frozenset()

    def _look_up(self, fetches: Any, fed: list[Any]) -> frozenset[tuple[str, int]]:
        found = (self._gates.get(name) for name in ops_of_run(self._graph, fetches, fed))
        return frozenset(gate for gate in found if gate is not None)


def ops_of_run(graph: Any, fetches: Any, fed: Iterable[Any], cut: Iterable[Any] = ()) -> set[str]:
    """The names of the ops that a run of `fetches` executes, behind none of the tensors `fed` and `cut`."""
    names = {element.name for element in _elements(graph, list(fed))} | {tensor.name for tensor in cut}
    return {op.name for op in ancestors(_elements(graph, fetches), names)}


def _elements(graph: Any, fetches: Any) -> list[Any]:
    return [graph.as_graph_element(leaf) for leaf in tf.nest.flatten(fetches, expand_composites=True)]


def _identity(fetches: Any) -> Any:
    kind = type(fetches)
    if kind is list or kind is tuple:
        return tuple([_identity(each) for each in fetches])
    if kind is dict:
        return tuple([(name, _identity(each)) for name, each in fetches.items()])
    return fetches if kind is str else id(fetches)
