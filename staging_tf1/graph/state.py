"""What the package stores per graph and per session, as one attribute of each.

The rooms above keep their objects here, each with functions that return them with their types.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from staging_tf1._tf import count_runs
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.callsite import CallSite

__all__ = ["GraphState", "SessionState", "Store", "StoreKey", "counted_state_of", "session_state_of", "state_of"]

# It lives as long as the graph or session. A WeakKeyDictionary would never free it, because the areas refer to their
# graph. A TensorFlow collection would warn at every export_meta_graph.
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
    # Its `Session.run` calls, from the first `counted_state_of` on.
    runs: int = 0
    counts_runs: bool = False
    # The kernels' stores, as declared by our areas and by ops found in the graph.
    stores: dict[StoreKey, Store] = field(default_factory=dict)
    # How many of the graph's ops have been searched for stores that were imported or made by other code.
    searched_ops: int = 0
    # The functions of its library, as FunctionDefs by name, when they were last read.
    functions: dict[str, Any] = field(default_factory=dict)
    # Ops made once: by the name of what they look at, for the queue of `SyncReplicasOptimizer`, by variables.
    probes: dict[str, Any] = field(default_factory=dict)
    sync_tokens: Any = None
    uninitialized: dict[tuple[str, ...], Any] = field(default_factory=dict)
    # In a cluster: the check in each step, and the savers that write copies. They are made at most once.
    fence: Any = None
    copies: Any = None
    makes_copies: bool = False
    # The pipelines, oldest first, and what starts the threads of each.
    pipelines: list[Any] = field(default_factory=list)
    runners: dict[Any, Any] = field(default_factory=dict)
    # Whether a `StagingHook` starts them.
    starts_together: bool = False
    # Their runs in all sessions.
    pipeline_runs: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    # Of savers: the last call, whether errors are explained also without a pipeline, and that of a monitored session.
    last_save: Any = None
    guards_savers: bool = False
    saver: Any = None
    # The pipelines whose position they do not save, and that were told.
    unsaved: set[Any] = field(default_factory=set)

    def note_run(self) -> None:
        """Count a run that is about to start.

        Raises:
          ForkedError: no session can run in this process.
        """
        refuse_if_forked("A session")
        self.runs += 1


@dataclass
class SessionState:
    """The record of one session."""

    # By pipeline: those that run, and those that are prepared but not started.
    runs: dict[Any, Any] = field(default_factory=dict)
    prepared: dict[Any, Any] = field(default_factory=dict)
    # The pipelines that were started before.
    started: set[Any] = field(default_factory=set)
    # Held while pipelines are prepared.
    lock: threading.RLock = field(default_factory=threading.RLock)
    # Of the chief: whether it continues a run that is under way; None if its creator does not know.
    continues_run: bool | None = None
    # What its runs go through (`feed/chain.py`).
    chain: Any = None
    # Whether its steps are seen (`lifecycle/steps.py`).
    is_watched: bool = False
    # What `start()` has begun in it.
    runtime: Any = None
    # How often its feed threads hold the GIL (`feed/lock_probe.py`).
    lock_probe: Any = None


def state_of(graph: Any) -> GraphState:
    """Return the record of `graph`; the first call creates it."""
    state: GraphState | None = getattr(graph, _ATTRIBUTE, None)
    if state is None:
        state = GraphState()
        setattr(graph, _ATTRIBUTE, state)
    return state


def counted_state_of(graph: Any) -> GraphState:
    """Return the record of `graph`, whose runs are counted from the first call on."""
    state = state_of(graph)
    if not state.counts_runs:
        state.counts_runs = True
        count_runs(graph, state.note_run)
    return state


def session_state_of(session: Any) -> SessionState:
    """Return the record of `session`; the first call creates it."""
    state: SessionState | None = getattr(session, _ATTRIBUTE, None)
    # Two threads may start pipelines of one session.
    return vars(session).setdefault(_ATTRIBUTE, SessionState()) if state is None else state
