"""Knows the stores of a graph, by the names under which the kernels find them.

The kernels find a store by device, container and shared name. The first op that runs creates it. If two ops have
different capacities, they silently share the store of whichever ran first. The same goes for ops imported from a
MetaGraph.
"""

from __future__ import annotations

from typing import Any

from staging_tf1.errors import SpecError
from staging_tf1.graph.state import GraphState, Store, StoreKey, counted_state_of

__all__ = ["Store", "StoreKey", "claim", "is_taken", "shared_root"]


# Op types by kind. A partial get of a map kind (Unstage, Peek) has only the dtypes of the components that it takes.
_KINDS = {
    **dict.fromkeys(("Stage", "Unstage", "StagePeek", "StageSize", "StageClear"), "Stage"),
    **{
        prefix + op: f"{prefix}Stage"
        for prefix in ("Map", "OrderedMap")
        for op in ("Stage", "Unstage", "UnstageNoKey", "Peek", "Size", "IncompleteSize", "Clear")
    },
}
_PARTIAL = (
    "MapUnstage",
    "MapUnstageNoKey",
    "MapPeek",
    "OrderedMapUnstage",
    "OrderedMapUnstageNoKey",
    "OrderedMapPeek",
)


def is_taken(graph: Any, key: StoreKey) -> bool:
    """Whether an area or op of `graph` uses the name."""
    return key in _stores(graph)


def shared_root(graph: Any, key: StoreKey) -> Any | None:
    """Return the op that marks the device of the store; None if there is no such store."""
    store = _stores(graph).get(key)
    return store.root if store else None


def check_same(graph: Any, key: StoreKey, capacity: int, memory_limit: int, dtypes: list[Any], area: str) -> None:
    """Raise SpecError if the store exists and was declared differently."""
    store = _stores(graph).get(key)
    if store is None:
        return
    for what, here, there in (
        ("capacity", capacity, store.capacity),
        ("memory_limit", memory_limit, store.memory_limit),
        ("dtypes", tuple(dtypes), store.dtypes),
    ):
        if there is not None and here != there:
            raise SpecError(
                f"{area} shares its name with {store.owner}, but has {what}={_text(here)}, expected "
                f"{what}={_text(there)}. Give both the same {what}, or use a different shared_name."
            )


def claim(graph: Any, key: StoreKey, store: Store) -> None:
    """Record a new area's store, unless the store exists."""
    _stores(graph).setdefault(key, store)


def _stores(graph: Any) -> dict[StoreKey, Store]:
    state = counted_state_of(graph)
    _search_new_ops(graph, state)
    return state.stores


def _search_new_ops(graph: Any, state: GraphState) -> None:
    ops = graph.get_operations()
    for op in ops[state.searched_ops :]:
        kind = _KINDS.get(op.type)
        if kind is None:
            continue
        # Without a shared name, the store has the name of the op.
        name = op.get_attr("shared_name").decode() or op.name
        key = StoreKey(kind, op.get_attr("container").decode(), name)
        dtypes = None if op.type in _PARTIAL else tuple(op.get_attr("dtypes"))
        store = Store(op.get_attr("capacity"), op.get_attr("memory_limit"), dtypes, op, f"the op {op.name!r}")
        known = state.stores.setdefault(key, store)
        if known.dtypes is None:
            state.stores[key] = store
    state.searched_ops = len(ops)


def _text(value: Any) -> str:
    return str([dtype.name for dtype in value]) if isinstance(value, tuple) else str(value)
