"""`BaseStagingArea`: what both kinds of area share, and which areas and stores a graph has.

The kernels find a store by device, container and shared name. The first op that runs creates it. If two ops have
different capacities, they silently share the store of whichever ran first. The same goes for ops imported from a
MetaGraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from staging_tf1._tf import current_container, has_default_graph, is_inside, own_frames_hidden, scope_device, tf
from staging_tf1.arguments import op_name, shown
from staging_tf1.errors import BuildError, SpecError, short_traceback
from staging_tf1.graph.elements import declare, to_tensors, types_of
from staging_tf1.graph.guards import building
from staging_tf1.graph.state import KnownStores, Store, StoreKey, counted_state_of

_Area = TypeVar("_Area", bound="BaseStagingArea")

# The suffix of the ops that wake a get, such as `StagingArea.misfit_op`.
MISFIT = "misfit"
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


def areas_of(graph: Any) -> list[BaseStagingArea]:
    """The areas that were built in `graph`, oldest first. `import_meta_graph` imports ops, but no areas."""
    return list(counted_state_of(graph).areas)


class BaseStagingArea:
    """What both kinds of area share: the declaration, the device of the store, and how ops on it are made.

    Attributes:
      graph: the graph that the area was built in.
      device: the device string of the store, from the device scope at construction; "" without one.
      is_shared: whether `shared_name` was given. Other areas, or other sessions of a server, may then use the store.
      made_at: the user's line that built the area.
      outputs: every tensor that `get` and `peek` returned, for the placement check.
      placement_warned: whether the user has been warned that the area is on the wrong device.
    """

    # Whether one that is built again on the same line only warns.
    warns_of_repeats = False

    @short_traceback
    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        caller = type(self).__name__
        with building(caller, warns_of_repeats=self.warns_of_repeats) as site:
            self._declared = declare(caller, dtypes, shapes, names, capacity, memory_limit)
            self.made_at = site
            self.graph: Any = tf.get_default_graph()
            self._container = current_container(self.graph)
            self.is_shared = shared_name is not None
            self._name = self._unused_name() if shared_name is None else _checked_name(caller, shared_name)
            key = self._store_key(self._name)
            store = _stores(self.graph).get(key)
            if store is not None:
                self._check_same(store)
            self._root = self._make_root(None if store is None else store.root)
            self.device = str(self._root.device)
            self.outputs: list[Any] = []
            self.placement_warned = False
            self._cached: dict[str, Any] = {}
            own = Store(self.capacity, self.memory_limit, tuple(self.dtypes), self._root, str(self))
            _stores(self.graph).setdefault(key, own)
            counted_state_of(self.graph).areas.append(self)

    @classmethod
    def from_tensors(
        cls: type[_Area],
        tensors: Any,
        names: Sequence[str] | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
        shared_name: str | None = None,
    ) -> _Area:
        """Build an area for elements like `tensors`: with their dtypes, static shapes and, for a dict, names.

        Args:
          tensors: a tensor, variable, numpy array or `tf.TensorSpec`; or a list, tuple or dict of them. The components
            of a dict are ordered by key, as in `tf.nest`.
          names: as in the constructor; not allowed with a dict.
          capacity: in elements; 0 is unbounded.
          memory_limit: in bytes; 0 is unbounded.
          shared_name: as in the constructor.

        Raises:
          TypeError, ValueError: an argument is invalid.

        >>> images = tf.placeholder(tf.uint8, [32, 28, 28])
        >>> labels = tf.placeholder(tf.int64, [32])
        >>> area = StagingArea.from_tensors({"label": labels, "image": images}, capacity=2)
        >>> area.names, area.dtypes
        (['image', 'label'], [tf.uint8, tf.int64])
        """
        dtypes, shapes, names = types_of(tensors, names)
        return cls(dtypes, shapes, names, shared_name=shared_name, capacity=capacity, memory_limit=memory_limit)

    @property
    def name(self) -> str:
        """The name of the store: `shared_name`, or a name that is unique in the graph."""
        return self._name

    @property
    def dtypes(self) -> list[Any]:
        """The tf.DType of each component."""
        return self._declared.dtypes

    @property
    def shapes(self) -> list[Any]:
        """The tf.TensorShape of each component."""
        return self._declared.shapes

    @property
    def names(self) -> list[str] | None:
        """The name of each component; None if elements are lists."""
        return self._declared.names

    @property
    def capacity(self) -> int:
        """The maximum number of elements; 0 is unbounded."""
        return self._declared.capacity

    @property
    def memory_limit(self) -> int:
        """The maximum number of bytes; 0 is unbounded."""
        return self._declared.memory_limit

    def size(self, name: str | None = None) -> Any:
        """Return the number of elements in the area, an int32 scalar. Run on the area's device in any scope."""
        return self._on_store("size", name, self._raw("Size"), dtypes=self.dtypes)

    def clear(self, name: str | None = None) -> Any:
        """Return the op that removes all elements. It runs on the area's device in any scope."""
        return self._on_store("clear", name, self._raw("Clear"), dtypes=self.dtypes)

    def size_op(self) -> Any:
        """Return `size()`, made once per graph, so that session helpers do not grow the graph."""
        return self._once("size", self.size)

    def clear_op(self) -> Any:
        """Return `clear()`, made once per graph."""
        return self._once("clear", self.clear)

    # ---- for subclasses

    # "Stage", "MapStage" or "OrderedMapStage": the kernels keep a separate table of names for each.
    _kind: str

    def _raw(self, op: str) -> Any:
        """Return the tf.raw_ops function for "Size", "Clear", "Unstage"... of this kind of area."""
        prefix = "Stage" if self._kind == "Stage" else self._kind.removesuffix("Stage")
        return getattr(tf.raw_ops, f"{prefix}{op}")

    def __str__(self) -> str:
        return f"area {self._name!r} (made at {self.made_at})"

    @contextmanager
    def _in_graph(self, method: str, name: str | None = None) -> Iterator[Any]:
        """Enter the area's graph, unless the default graph is a function graph (of a cond, a map...) inside it.

        Raises:
          BuildError: `method` is called in another graph.
          TypeError, ValueError: `name` is not a valid op name.
        """
        op_name(f"{self}: {method}", name, in_scope=True)
        here = tf.get_default_graph() if has_default_graph() else self.graph
        if not is_inside(here, self.graph):
            raise BuildError(
                f"{self}: {method} is called while another graph is the default. Use the area in the graph that it "
                "was built in: call it within `with area.graph.as_default():`."
            )
        with own_frames_hidden():
            if here is not self.graph or has_default_graph():
                yield here
            else:
                with here.as_default():
                    yield here

    @contextmanager
    def _at_store(self, graph: Any) -> Iterator[None]:
        """Place ops on the device and in the container of the store."""
        with graph.container(self._container):
            if graph is self.graph:
                with graph.colocate_with(self._root):
                    yield
            else:
                # An op in a function graph cannot be colocated with an op outside it. It can only name the same device.
                with tf.device(None), tf.device(self.device or None):
                    yield

    def _on_store(self, method: str, name: str | None, raw: Any, **arguments: Any) -> Any:
        """Make one op on the store."""
        with self._in_graph(method, name) as graph, self._at_store(graph):
            return raw(
                capacity=self.capacity,
                memory_limit=self.memory_limit,
                shared_name=self._name,
                name=name or f"{_op_name(self._name)}_{method}",
                **arguments,
            )

    def _put_scope(self, name: str | None) -> Any:
        return tf.name_scope(name, f"{_op_name(self._name)}_put", [])

    def _to_tensors(self, graph: Any, values: Sequence[Any], indices: Sequence[int]) -> list[Any]:
        return to_tensors(str(self), self._declared, graph, values, indices)

    def _element(self, tensors: Sequence[Any], indices: Sequence[int]) -> Any:
        """Return what `get` and `peek` return: a list of tensors with static shapes, or a dict if there are names."""
        moved = self._to_scope_device(tensors)
        for tensor, index in zip(moved, indices, strict=True):
            tensor.set_shape(self.shapes[index])
        self.outputs.extend(moved)
        if self.names:
            return {self.names[index]: tensor for tensor, index in zip(moved, indices, strict=True)}
        return moved

    def _to_scope_device(self, tensors: Sequence[Any]) -> list[Any]:
        """Copy the tensors to the device of the current scope, unless that is the area's device."""
        if scope_device() == self.device:
            return list(tensors)
        return [tf.identity(tensor) for tensor in tensors]

    # ---- construction

    def _store_key(self, name: str) -> StoreKey:
        return StoreKey(self._kind, self._container, name)

    def _check_same(self, store: Store) -> None:
        """Raise SpecError if the store was declared differently."""
        for argument, here, there in (
            ("capacity", self.capacity, store.capacity),
            ("memory_limit", self.memory_limit, store.memory_limit),
            ("dtypes", tuple(self.dtypes), store.dtypes),
        ):
            if there is not None and here != there:
                raise SpecError(
                    f"{self} shares its name with {store.owner}, but has {argument}={_text(here)}, expected "
                    f"{argument}={_text(there)}. Give both the same {argument}, or use a different shared_name."
                )

    def _unused_name(self) -> str:
        while True:
            name = str(self.graph.unique_name(type(self).__name__))
            # The graph does not know the names that shared_name or an import uses.
            if self._store_key(name) not in _stores(self.graph):
                return name

    def _make_root(self, shared: Any | None) -> Any:
        """Make the op that all ops of the store are colocated with. It never runs."""
        with tf.control_dependencies(None), tf.name_scope(f"{_op_name(self._name)}_root"):
            root = tf.no_op()
            if shared is None or root.device:
                return root
            # The name is shared and the scope names no device. On another device there would be a new, empty store.
            with self.graph.colocate_with(shared):
                return tf.no_op(name="Shared")

    def _once(self, name: str, make: Any) -> Any:
        if name not in self._cached:
            if self.graph.finalized:
                raise BuildError(
                    f"{self}: {name} was requested after the graph was finalized: create it while building the graph."
                )
            with self.graph.as_default(), tf.control_dependencies(None), tf.name_scope(None):
                self._cached[name] = make()
        return self._cached[name]


def _checked_name(caller: str, shared_name: Any) -> str:
    if not isinstance(shared_name, str):
        raise ValueError(  # not a TypeError, because TensorFlow 1 raised a ValueError
            f"{caller}: shared_name must be a string, got {shown(shared_name)} ({type(shared_name).__name__})."
        )
    if not shared_name:
        raise ValueError(f"{caller}: shared_name is empty; leave it out for a store that is not shared.")
    return shared_name


def _op_name(name: str) -> str:
    allowed = re.sub(r"[^A-Za-z0-9_.\\/-]", "_", name)
    return allowed if re.match(r"[A-Za-z0-9.]", allowed) else f"area{allowed}"


def store_of(op: Any) -> str:
    """Return the name of the store that an op of an area uses: without a shared name, that of the op."""
    return str(op.get_attr("shared_name").decode() or op.name)


def _stores(graph: Any) -> dict[StoreKey, Store]:
    known = counted_state_of(graph).stores
    _search_new_ops(graph, known)
    return known.by_key


def _search_new_ops(graph: Any, known: KnownStores) -> None:
    ops = graph.get_operations()
    for op in ops[known.searched_ops :]:
        kind = _KINDS.get(op.type)
        if kind is None:
            continue
        key = StoreKey(kind, op.get_attr("container").decode(), store_of(op))
        dtypes = None if op.type in _PARTIAL else tuple(op.get_attr("dtypes"))
        store = Store(op.get_attr("capacity"), op.get_attr("memory_limit"), dtypes, op, f"the op {op.name!r}")
        if known.by_key.setdefault(key, store).dtypes is None:
            known.by_key[key] = store
    known.searched_ops = len(ops)


def _text(value: Any) -> str:
    return str([dtype.name for dtype in value]) if isinstance(value, tuple) else str(value)
