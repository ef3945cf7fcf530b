"""What the package stores per graph: its areas, the lines that built them, and how often it was run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from staging_tf1._tf import count_runs
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.callsite import CallSite

__all__ = ["GraphState", "Store", "StoreKey", "state_of"]

# An attribute of the graph, so that it lives as long as the graph. A WeakKeyDictionary would never free it, because the
# areas refer to their graph. A TensorFlow collection would warn at every export_meta_graph.
_ATTRIBUTE = "_staging_tf1_state"


class StoreKey(NamedTuple):
    """The identity of a store, without the device."""

    # "Stage", "MapStage" or "OrderedMapStage": each has its own table of names.
    kind: str
    container: str
    shared_name: str


@dataclass(frozen=True)
class Store:
    """What is known about a store."""

    capacity: int
    memory_limit: int
    # None if only partial gets were found.
    dtypes: tuple[Any, ...] | None
    # The first op of the store. Areas that name no device are colocated with it.
    root: Any
    # For messages.
    owner: str


@dataclass
class GraphState:
    """The record of one graph."""

    # In the order of construction. Strong references, because the ops of an area outlive the Python object.
    areas: list[Any] = field(default_factory=list)
    # For each line that built something, the value of `runs` when it last did.
    built: dict[CallSite, int] = field(default_factory=dict)
    # `Session.run` calls since the record was created.
    runs: int = 0
    # The kernels' stores, as declared by our areas and by ops found in the graph.
    stores: dict[StoreKey, Store] = field(default_factory=dict)
    # How many of the graph's ops have been searched for stores that were imported or made by other code.
    searched_ops: int = 0
    # The functions that its ops call, as FunctionDefs by name, as of the last look at them.
    functions: dict[str, Any] = field(default_factory=dict)

    def note_run(self) -> None:
        """Counts a run that is about to start.

        Raises:
          ForkedError: no session can run in this process.
        """
        refuse_if_forked("A session")
        self.runs += 1


def state_of(graph: Any) -> GraphState:
    """Returns the record of `graph`; the first call creates it."""
    state = getattr(graph, _ATTRIBUTE, None)
    if state is None:
        state = GraphState()
        setattr(graph, _ATTRIBUTE, state)
        count_runs(graph, state.note_run)
    return state
