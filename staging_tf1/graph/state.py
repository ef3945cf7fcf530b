"""What the package stores per graph and per session, as one attribute of each: a `GraphState`, and a `Feeding`.

The rooms above keep their objects here. Their classes are imported for type hints only: at run time, imports go down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from staging_tf1._tf import count_runs
from staging_tf1.graph.callsite import CallSite

if TYPE_CHECKING:
    from staging_tf1.cluster.fence import Fence
    from staging_tf1.cluster.snapshot import Copies
    from staging_tf1.feed.checkpoint import LastSave
    from staging_tf1.feed.feeding import Feeding
    from staging_tf1.feed.pipeline import Pipeline
    from staging_tf1.graph.area_base import BaseStagingArea
    from staging_tf1.graph.probes import Probe
    from staging_tf1.graph.sync_tokens import SyncTokens

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
    capacity: int
    memory_limit: int
    # None if only partial gets were found.
    dtypes: tuple[Any, ...] | None
    # The first op of the store. Areas that name no device are colocated with it.
    root: Any
    # For messages.
    owner: str


@dataclass
class KnownStores:
    # The stores as our areas, and ops found in the graph, declare them.
    by_key: dict[StoreKey, Store] = field(default_factory=dict)
    # How many of the graph's ops have been searched for stores that were imported or made by other code.
    searched_ops: int = 0


@dataclass
class SharedOps:
    # What looks at an area or queue without waiting, by the key of that area or queue.
    probes: dict[str, Probe] = field(default_factory=dict)
    # The ops on the queue of `SyncReplicasOptimizer`; None without such a queue.
    sync_tokens: SyncTokens | None = None
    # The tensor with the names of the uninitialized variables, by the names of the variables that are asked about.
    uninitialized: dict[tuple[str, ...], Any] = field(default_factory=dict)
    # The check in each step that its worker is part of the run of the cluster; None outside a cluster.
    fence: Fence | None = None
    # The savers that write copies; None before the graph is finalized, and where none do.
    copies: Copies | None = None
    # Whether `copies` will be made when the graph is finalized.
    copies_are_due: bool = False


@dataclass
class GraphState:
    # In the order of construction. Strong references, because the ops of an area outlive the Python object.
    areas: list[BaseStagingArea] = field(default_factory=list)
    stores: KnownStores = field(default_factory=KnownStores)
    # The functions of its library, as FunctionDefs by name, when they were last read.
    functions: dict[str, Any] = field(default_factory=dict)
    ops: SharedOps = field(default_factory=SharedOps)
    # Its `Session.run` calls, from the first `counted_state_of` on, and whether they are counted.
    runs: int = 0
    counts_runs: bool = False
    # For each line that built something, the value of `runs` when it last did.
    built: dict[CallSite, int] = field(default_factory=dict)
    # Oldest first.
    pipelines: list[Pipeline] = field(default_factory=list)
    # Whether a `StagingHook` starts all of them.
    start_together: bool = False
    # Whether an error of a restore is explained although the graph has no pipeline.
    savers_are_guarded: bool = False
    # The `tf.train.Saver` of a monitored session; None without one.
    monitored_saver: Any = None
    # The last call of the saver that saves the checkpoints of a session; None if nothing will repeat it.
    last_save: LastSave | None = None
    # The pipelines whose position no saver saves, after the warning that says so.
    unsaved: set[Pipeline] = field(default_factory=set)


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
        count_runs(graph, state)
    return state


def feeding_in(session: Any) -> Feeding | None:
    feeding: Feeding | None = getattr(session, _ATTRIBUTE, None)
    return feeding


def is_watched(session: Any) -> bool:
    """Whether the steps of `session` are seen (`lifecycle/steps.py`)."""
    feeding = feeding_in(session)
    return feeding is not None and feeding.is_watched


def attach(session: Any, feeding: Feeding) -> Feeding:
    """Make `feeding` that of `session`, unless it has one. Return what it has."""
    # Two threads may start pipelines of one session.
    attached: Feeding = vars(session).setdefault(_ATTRIBUTE, feeding)
    return attached
