"""Which stores a graph already has, by the name that the kernels know them by.

The kernels find a store by device, container and shared name, and create it at the first op that runs: two
ops that disagree on the capacity share it in silence, with the capacity of whichever ran first. Ops that were
imported from a MetaGraph count as much as areas of this program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from staging_tf1.errors import SpecError
from staging_tf1.graph.graph_state import GraphState, state_of

__all__ = ["Store", "StoreKey", "claim", "is_taken", "shared_root"]


class StoreKey(NamedTuple):
    """What tells stores apart, less the device."""

    # "Stage", "MapStage" or "OrderedMapStage": each keeps a table of names of its own.
    kind: str
    container: str
    shared_name: str


@dataclass(frozen=True)
class Store:
    """What is known of a store."""

    capacity: int
    memory_limit: int
    # None when only ops that move a part of an element were found.
    dtypes: tuple[Any, ...] | None
    # Where the first op of the store stands; later areas without a device of their own join it.
    root: Any
    # How messages call its owner.
    owner: str


# Op types by kind; partial gets of the map kinds (Unstage, Peek) carry the dtypes of what they move only.
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
    """Whether an area or an op of `graph` uses the name."""
    return key in _stores(graph)


def shared_root(graph: Any, key: StoreKey) -> Any | None:
    """The op that stands where the store of that name lives, or None when there is none yet."""
    store = _stores(graph).get(key)
    return store.root if store else None


def check_same(graph: Any, key: StoreKey, capacity: int, memory_limit: int, dtypes: list[Any], area: str) -> None:
    """Raises when the store exists and was declared otherwise."""
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
                f"{area} shares its name with {store.owner}, but has {what}={_text(here)} where that one has "
                f"{what}={_text(there)}. Give both the same {what}, or this one another shared_name."
            )


def claim(graph: Any, key: StoreKey, store: Store) -> None:
    """Notes a new area's store, unless one of that name is there."""
    _stores(graph).setdefault(key, store)


def _stores(graph: Any) -> dict[StoreKey, Store]:
    state = state_of(graph)
    _search_new_ops(graph, state)
    return state.stores


def _search_new_ops(graph: Any, state: GraphState) -> None:
    ops = graph.get_operations()
    for op in ops[state.searched_ops :]:
        kind = _KINDS.get(op.type)
        if kind is None:
            continue
        # An op without a shared name has a store under its own.
        name = op.get_attr("shared_name").decode() or op.name
        key = StoreKey(kind, op.get_attr("container").decode(), name)
        dtypes = None if op.type in _PARTIAL else tuple(op.get_attr("dtypes"))
        found = Store(op.get_attr("capacity"), op.get_attr("memory_limit"), dtypes, op, f"the op {op.name!r}")
        known = state.stores.setdefault(key, found)
        if known.dtypes is None:
            state.stores[key] = found
    state.searched_ops = len(ops)


def _text(value: Any) -> str:
    return str([dtype.name for dtype in value]) if isinstance(value, tuple) else str(value)
