"""What the package stores per graph: its areas, the lines that built them, and how often it was run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from staging_tf1._tf import count_runs
from staging_tf1.fork import refuse_if_forked

if TYPE_CHECKING:
    from staging_tf1.graph.areas import BaseStagingArea
    from staging_tf1.graph.callsite import CallSite
    from staging_tf1.graph.stores import Store, StoreKey

__all__ = ["GraphState", "state_of"]

# An attribute of the graph, so that it lives as long as the graph. A WeakKeyDictionary would never free it, because the
# areas refer to their graph. A TensorFlow collection would warn at every export_meta_graph.
_ATTRIBUTE = "_staging_tf1_state"


@dataclass
class GraphState:
    """The record of one graph."""

    # In the order of construction. Strong references, because the ops of an area outlive the Python object.
    areas: list[BaseStagingArea] = field(default_factory=list)
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
