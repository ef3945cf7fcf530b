"""`Meaning`: what the fetches and feeds of a program mean after its input was staged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.auto.rewire import PutMeter
from staging_tf1.errors import AutoStageError
from staging_tf1.graph.dependencies import ByFetches, ancestors, elements_of
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.state import state_of


@dataclass(frozen=True)
class Group:
    """Ops that run ahead together, and their area."""

    sink: Sink
    # The names of its ops; and of those that take batches.
    ops: frozenset[str]
    sources: frozenset[str]
    # For each carried tensor, by name: the tensor that the step reads, and the sources that it depends on.
    carried: Mapping[str, tuple[Any, frozenset[str]]]
    # For ops of the step that ran after ops that now run ahead: the sources of the latter.
    after: Mapping[str, frozenset[str]]
    # Measures how long a put takes; None with deterministic ops.
    meter: PutMeter | None = None


class _Translation(NamedTuple):
    fetches: Any
    # By the number of a fed tensor, what is fed instead; None feeds nothing.
    feeds: dict[int, Any]
    # Tensors to compute from the feeds first, and what to feed with each.
    first: tuple[tuple[Any, Any], ...]


class Meaning:
    """Translates the runs of one graph.

    Args:
      graph: the staged graph.
      groups: what runs ahead.
    """

    def __init__(self, graph: Any, groups: Sequence[Group]) -> None:
        self._graph, self.groups = graph, groups
        self._ahead = {name: group for group in groups for name in group.ops}
        self._carried = {name: output[0] for group in groups for name, output in group.carried.items()}
        self._translations = ByFetches(self._look_up)

    def of_run(
        self, fetches: Any, feed_dict: Any, compute: Callable[[Sequence[Any], Any], Sequence[Any]]
    ) -> tuple[Any, Any]:
        """Return the fetches and feeds of the staged graph for those of the program.

        Args:
          fetches: as in `Session.run`.
          feed_dict: as in `Session.run`.
          compute: runs tensors for which no batch is taken.

        Raises:
          AutoStageError: the run cannot keep its meaning.
        """
        translation: _Translation = self._translations.of(fetches, feed_dict)
        if not translation.feeds:
            return translation.fetches, feed_dict
        fed = {translation.feeds.get(number, key): value for number, (key, value) in enumerate(feed_dict.items())}
        if translation.first:
            values = compute([tensor for tensor, _ in translation.first], feed_dict)
            fed.update((instead, value) for (_, instead), value in zip(translation.first, values, strict=True))
        return translation.fetches, fed

    def fetches(self, fetches: Any, feed_list: Sequence[Any] | None = None) -> Any:
        """Return the fetches of a callable.

        Raises:
          AutoStageError: a fed tensor runs ahead, or as in `of_run`.
        """
        translation: _Translation = self._translations.of(fetches, list(feed_list or ()))
        if translation.feeds:
            raise AutoStageError("make_callable() cannot feed a tensor that auto_stage() has moved. Use Session.run.")
        return translation.fetches

    def _look_up(self, fetches: Any, fed: list[Any]) -> _Translation:
        mapped = _mapped(fetches, self._fetched)
        feeds, first = self._fed(fed)
        try:
            given = {element.name for key in fed for element in elements_of(self._graph, key)}
            wanted = elements_of(self._graph, mapped)
        except (KeyError, TypeError, ValueError):
            # Only Session.run can say what is wrong with it.
            return _Translation(mapped, feeds, tuple(first))
        given |= {tensor.name for tensor in feeds.values()} | {instead.name for _, instead in first}
        self._check({op.name: op for op in ancestors(wanted, given)}, given)
        return _Translation(mapped, feeds, tuple(first))

    def _fetched(self, leaf: Any) -> Any:
        try:
            parts = tf.nest.flatten(leaf, expand_composites=True)
            elements = [self._graph.as_graph_element(part) for part in parts]
        except (KeyError, TypeError, ValueError):
            return leaf
        if not any(_op_of(element).name in self._ahead for element in elements):
            return leaf
        instead = [self._instead(element) for element in elements]
        if len(parts) == 1 and parts[0] is leaf:
            return instead[0]
        return tf.nest.pack_sequence_as(leaf, instead, expand_composites=True)

    def _instead(self, element: Any) -> Any:
        group = self._ahead.get(_op_of(element).name)
        if group is None:
            return element
        if element.name in self._carried:
            return self._carried[element.name]
        if isinstance(element, tf.Operation):
            carried = [self._carried[output.name] for output in element.outputs if output.name in self._carried]
            if carried and len(carried) == len(element.outputs):
                return carried[0].op
        raise AutoStageError(
            f"'{element.name}' runs ahead of the step, so it cannot be fetched with it. To carry it to the step, call "
            f"auto_stage(keep=['{element.name}'])."
        )

    def _fed(self, fed: Sequence[Any]) -> tuple[dict[int, Any], list[tuple[Any, Any]]]:
        feeds: dict[int, Any] = {}
        moved: dict[str, Any] = {}
        for number, key in enumerate(fed):
            elements = self._elements(key)
            for element in elements:
                if _op_of(element).name not in self._ahead:
                    continue
                if len(elements) > 1:
                    raise AutoStageError(
                        f"'{element.name}' is a component of a sparse or ragged value that runs ahead of the step. "
                        f"Feed its components one by one."
                    )
                moved[element.name] = element
                # One that is not carried is fed as it is, to compute others from it first.
                feeds[number] = self._carried.get(element.name, element)
        first = []
        given = {element.name for key in fed for element in self._elements(key)}
        for name, instead in self._carried.items() if moved else ():
            if name in moved:
                continue
            tensor = self._graph.as_graph_element(name)
            if not any(read.name in moved for op in ancestors([tensor]) for read in op.inputs):
                continue
            behind = {op.name for op in ancestors([tensor], given)}
            sources = sorted(behind & self._ahead[tensor.op.name].sources)
            if sources:
                raise AutoStageError(
                    f"{sorted(moved)} is fed, and '{name}' is computed from it and from '{sources[0]}', which runs "
                    f"ahead of the step. Feed '{name}' too, or carry the fed tensor to the step with "
                    f"auto_stage(keep=...)."
                )
            first.append((tensor, instead))
        return feeds, first

    def _elements(self, key: Any) -> list[Any]:
        try:
            return elements_of(self._graph, key)
        except (KeyError, TypeError, ValueError):
            return []

    def _check(self, ops: Mapping[str, Any], given: set[str]) -> None:
        for group in self.groups:
            late = sorted(group.ops & ops.keys())
            if late:
                raise AutoStageError(
                    f"the run computes '{late[0]}', which runs ahead of the step: it depends on it through an op that "
                    f"was added after auto_stage(). Call auto_stage() when the graph is complete."
                )
            assert group.sink.take is not None
            if len(group.sources) < 2 or group.sink.take.name not in ops:
                continue
            read: set[str] = set()
            for output, sources in group.carried.values():
                if output.op.name in ops and output.name not in given:
                    read |= sources
            for name, sources in group.after.items():
                if name in ops:
                    read |= sources
            if read != group.sources:
                raise AutoStageError(
                    f"the run takes a batch of {sorted(read)} but not of {sorted(group.sources - read)}, which "
                    f"auto_stage() has joined: they run ahead together. Run both in one step, or stage them apart."
                )


def _op_of(element: Any) -> Any:
    return element if isinstance(element, tf.Operation) else element.op


def _mapped(fetches: Any, fetched: Callable[[Any], Any]) -> Any:
    """Return the containers that `Session.run` looks into, with other leaves; the same object if none changed."""
    if isinstance(fetches, Mapping):
        changed = {key: _mapped(value, fetched) for key, value in fetches.items()}
        if all(changed[key] is value for key, value in fetches.items()):
            return fetches
        return changed if type(fetches) is dict else type(fetches)(changed)  # type: ignore[call-arg]
    if isinstance(fetches, (list, tuple)):
        parts = [_mapped(fetch, fetched) for fetch in fetches]
        if all(new is old for new, old in zip(parts, fetches)):
            return fetches
        return type(fetches)(*parts) if hasattr(fetches, "_fields") else type(fetches)(parts)
    if hasattr(type(fetches), "__attrs_attrs__"):
        mapped = copy.copy(fetches)
        for field in type(fetches).__attrs_attrs__:
            object.__setattr__(mapped, field.name, _mapped(getattr(fetches, field.name), fetched))
        return mapped
    return fetched(fetches)


def meaning_of(graph: Any) -> Meaning | None:
    """Return what runs of a staged graph mean; None for any other graph."""
    meaning: Meaning | None = state_of(graph).meaning
    return meaning


def set_meaning(graph: Any, meaning: Meaning) -> None:
    """Note that a graph was staged."""
    state_of(graph).meaning = meaning
