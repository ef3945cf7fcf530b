"""The staging area: a store on a device that holds elements between steps, as `tf.contrib.staging` had it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from staging_tf1._tf import FuncGraph, current_container, has_default_graph, scope_device, tf
from staging_tf1.arguments import INT32_MAX, as_int, op_name, shown
from staging_tf1.errors import BuildError, SpecError
from staging_tf1.graph import declared, stores
from staging_tf1.graph.elements import element_indices, to_tensors
from staging_tf1.graph.graph_state import state_of
from staging_tf1.graph.guards import building

__all__ = ["BaseStagingArea", "StagingArea", "areas_of"]

# Ends the name of the op that `StagingArea.misfit_op` makes.
MISFIT = "misfit"
_Area = TypeVar("_Area", bound="BaseStagingArea")


def areas_of(graph: Any) -> list[BaseStagingArea]:
    """The areas that were built in `graph`, oldest first. An import_meta_graph brings ops, no areas."""
    return list(state_of(graph).areas)


class BaseStagingArea:
    """What both kinds of area share: the declaration, the place of the store, and how ops are made there.

    Attributes:
      graph: the graph of the area.
      device: the device string of the store, from the device scope at construction; "" when it gave none.
      is_shared: whether a shared_name was given, so that other areas, or sessions of a server, may use the
      store.
      made_at: the user's line.
      outputs: every tensor that get and peek returned, for the check of placement.
      placement_warned: whether the user has been told that the area stands on the wrong device.
    """

    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        what = type(self).__name__
        with building(what) as site:
            self._declared = declared.declare(what, dtypes, shapes, names, capacity, memory_limit)
            self.made_at = site
            self.graph: Any = tf.get_default_graph()
            self._container = current_container(self.graph)
            self.is_shared = shared_name is not None
            self._name = self._unused_name() if shared_name is None else _checked_name(what, shared_name)
            key = self._store_key(self._name)
            stores.check_same(self.graph, key, self.capacity, self.memory_limit, self.dtypes, str(self))
            self._root = self._make_root(stores.shared_root(self.graph, key))
            self.device = str(self._root.device)
            self.outputs: list[Any] = []
            self.placement_warned = False
            self._cached: dict[str, Any] = {}
            store = stores.Store(self.capacity, self.memory_limit, tuple(self.dtypes), self._root, str(self))
            stores.claim(self.graph, key, store)
            state_of(self.graph).areas.append(self)

    @classmethod
    def from_tensors(
        cls: type[_Area],
        tensors: Any,
        names: Sequence[str] | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
        shared_name: str | None = None,
    ) -> _Area:
        """An area for elements like `tensors`: their dtypes and static shapes, and a dict's keys as names.

        Args:
          tensors: one, or a list, tuple or dict of: tensors, variables, numpy arrays, tf.TensorSpecs. The
            components of a dict are in the order of its sorted keys, as in tf.nest.
          names: as in the constructor; not with a dict.
          capacity: elements; 0 is unbounded.
          memory_limit: bytes; 0 is unbounded.
          shared_name: as in the constructor.

        Raises:
          TypeError, ValueError: an argument is wrong.

        >>> images = tf.placeholder(tf.uint8, [32, 28, 28])
        >>> labels = tf.placeholder(tf.int64, [32])
        >>> area = StagingArea.from_tensors({"label": labels, "image": images}, capacity=2)
        >>> area.names, area.dtypes
        (['image', 'label'], [tf.uint8, tf.int64])
        """
        dtypes, shapes, names = declared.from_tensors(tensors, names)
        return cls(dtypes, shapes, names, shared_name=shared_name, capacity=capacity, memory_limit=memory_limit)

    @property
    def name(self) -> str:
        """The name of the store: `shared_name`, or one that no other op of the graph uses."""
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
        """The name of each component; None when elements are lists."""
        return self._declared.names

    @property
    def capacity(self) -> int:
        """The most elements the area holds; 0 is unbounded."""
        return self._declared.capacity

    @property
    def memory_limit(self) -> int:
        """The most bytes the area holds; 0 is unbounded."""
        return self._declared.memory_limit

    def size(self, name: str | None = None) -> Any:
        """The number of elements in the area, read on its device wherever this is called: an int32 scalar."""
        return self._on_store("size", name, self._raw("Size"), dtypes=self.dtypes)

    def clear(self, name: str | None = None) -> Any:
        """The op that drops all elements, on the area's device wherever this is called."""
        return self._on_store("clear", name, self._raw("Clear"), dtypes=self.dtypes)

    def size_op(self) -> Any:
        """`size()`, made once a graph: a session helper may ask again without growing the graph."""
        return self._once("size", self.size)

    def clear_op(self) -> Any:
        """`clear()`, made once a graph."""
        return self._once("clear", self.clear)

    # ---- for the kinds of area

    # The kernels' table of names: "Stage", "MapStage" or "OrderedMapStage".
    _kind: str

    def _raw(self, op: str) -> Any:
        """The tf.raw_ops function for "Size", "Clear", "Unstage"... of this kind of area."""
        prefix = "Stage" if self._kind == "Stage" else self._kind.removesuffix("Stage")
        return getattr(tf.raw_ops, f"{prefix}{op}")

    def __str__(self) -> str:
        return f"area {self._name!r} (made at {self.made_at})"

    @contextmanager
    def _in_graph(self, what: str, name: str | None = None) -> Iterator[Any]:
        """Enters the area's graph, unless the default graph is a function (of a cond, a map...) within it.

        Raises:
          BuildError: `what` is called in another graph.
          TypeError, ValueError: no op can be called `name`.
        """
        op_name(f"{self}: {what}", name, in_scope=True)
        here = tf.get_default_graph() if has_default_graph() else self.graph
        inside = here
        while inside is not self.graph:
            if not isinstance(inside, FuncGraph):
                raise BuildError(
                    f"{self}: {what} is called while another graph is the default. An area is used in the "
                    "graph that it was built in: call it within `with area.graph.as_default():`."
                )
            inside = inside.outer_graph
        if here is not self.graph or has_default_graph():
            yield here
        else:
            with here.as_default():
                yield here

    @contextmanager
    def _at_store(self, graph: Any) -> Iterator[None]:
        """Where ops on the store stand: its device and container."""
        with graph.container(self._container):
            if graph is self.graph:
                with graph.colocate_with(self._root):
                    yield
            else:
                # A function's ops cannot be colocated with an op outside of it, only put on the same device.
                with tf.device(None), tf.device(self.device or None):
                    yield

    def _on_store(self, what: str, name: str | None, raw: Any, **arguments: Any) -> Any:
        """Makes one op of the store."""
        with self._in_graph(what, name) as graph, self._at_store(graph):
            return raw(
                capacity=self.capacity,
                memory_limit=self.memory_limit,
                shared_name=self._name,
                name=name or f"{_op_name(self._name)}_{what}",
                **arguments,
            )

    def _put_scope(self, name: str | None) -> Any:
        return tf.name_scope(name, f"{_op_name(self._name)}_put", [])

    def _to_tensors(self, graph: Any, values: Sequence[Any], indices: Sequence[int]) -> list[Any]:
        return to_tensors(str(self), self._declared, graph, values, indices)

    def _element(self, tensors: Sequence[Any], indices: Sequence[int]) -> Any:
        """What get and peek return: a list of tensors with static shapes, or a dict when there are names."""
        moved = self._to_scope_device(tensors)
        for tensor, index in zip(moved, indices, strict=True):
            tensor.set_shape(self.shapes[index])
        self.outputs.extend(moved)
        if self.names:
            return {self.names[index]: tensor for tensor, index in zip(moved, indices, strict=True)}
        return moved

    def _to_scope_device(self, tensors: Sequence[Any]) -> list[Any]:
        """Copies to the device of the scope that get is called in, when that is not the area's."""
        if scope_device() == self.device:
            return list(tensors)
        return [tf.identity(tensor) for tensor in tensors]

    # ---- construction

    def _store_key(self, name: str) -> stores.StoreKey:
        return stores.StoreKey(self._kind, self._container, name)

    def _unused_name(self) -> str:
        while True:
            name = str(self.graph.unique_name(type(self).__name__))
            # A shared_name, or an import, may have taken it without the graph's knowing.
            if not stores.is_taken(self.graph, self._store_key(name)):
                return name

    def _make_root(self, shared: Any | None) -> Any:
        """The op that all ops of the store are colocated with; it never runs."""
        with tf.control_dependencies(None), tf.name_scope(f"{_op_name(self._name)}_root"):
            root = tf.no_op()
            if shared is None or root.device:
                return root
            # The name is shared and this scope says no device: join the store, a new one would be empty.
            with self.graph.colocate_with(shared):
                return tf.no_op(name="Shared")

    def _once(self, what: str, make: Any) -> Any:
        if what not in self._cached:
            if self.graph.finalized:
                raise BuildError(f"{self}: {what} is wanted after the graph was finalized. Ask for it before.")
            with self.graph.as_default(), tf.control_dependencies(None), tf.name_scope(None):
                self._cached[what] = make()
        return self._cached[what]


class StagingArea(BaseStagingArea):
    """A first-in-first-out store of elements on a device; its `put` and `get` wait for room and for elements.

    Each element is a tuple of tensors of the declared dtypes. The store belongs to the session (on a
    `tf.train.Server`: to the server, under `shared_name`), and lives on the device whose scope the
    constructor was called in; tensors from `get` go to the device of the scope that `get` is called in. The
    semantics are those of `tf.contrib.staging.StagingArea` in TensorFlow 1.15
    (tensorflow/python/ops/data_flow_ops.py).

    `put` and `get` hold a thread of the session while they wait, and know no timeout: warm up with one `put`,
    then run `get` and `put` in every step. `staged()` does this for you and never waits in the area.

    Args:
      dtypes: a list with one dtype a component.
      shapes: one static shape a component; None, or None for a component, when it is unknown.
      names: one string a component; elements then are dicts.
      shared_name: areas of that name share one store. They must agree on all but shapes and names.
      capacity: the most elements to hold; put waits for room. 0 is unbounded.
      memory_limit: the most bytes to hold, likewise.

    Raises:
      TypeError, ValueError: an argument is wrong.
      staging_tf1.errors.SpecError: the element cannot be held within memory_limit, or the area of that
        shared_name was declared otherwise.
      staging_tf1.errors.BuildError: it is built where it would hang or leak (`staging_tf1.graph.guards`).

    >>> with tf.Graph().as_default(), tf.Session() as sess:
    ...     area = StagingArea([tf.float32, tf.int64], shapes=[[2], []], names=["x", "y"], capacity=2)
    ...     put = area.put({"x": [1.0, 2.0], "y": 7})
    ...     element = area.get()
    ...     sess.run(put)
    ...     print(sess.run(element["y"]), element["x"].shape)
    7 (2,)
    """

    _kind = "Stage"

    def put(self, values: Any, name: str | None = None) -> Any:
        """The op that puts one element; it waits while the area is full.

        Args:
          values: one value a component, in a list or tuple, or in a dict when the area has names; a single
            value for a single component. Tensors, variables (which are read), numpy values, and Python values
            that the declared dtype holds without loss.
          name: of the op.

        Raises:
          staging_tf1.errors.SpecError: number, names, dtypes, shapes or graph of the values do not fit.
          staging_tf1.errors.BuildError: called in another graph than the area's.

        >>> area = StagingArea([tf.int64], names=["label"], shared_name="train")
        >>> area.put({"label": np.zeros([32], np.int32)})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        staging_tf1.errors.SpecError: area 'train' (made at ...): component 'label' got int32 [32] ...
        """
        with self._in_graph("put", name) as graph:
            listed, indices = element_indices(str(self), self._declared, values)
            self._check_complete(indices)
            with self._put_scope(name) as scope:
                tensors = self._to_tensors(graph, listed, indices)
                return self._on_store("put", scope, tf.raw_ops.Stage, values=tensors)

    def get(self, name: str | None = None) -> Any:
        """Takes the oldest element; it waits while the area is empty.

        Returns:
          A list of tensors, or a dict when the area has names, of the declared dtypes and static shapes, on
          the device of the scope that this is called in.
        """
        return self._take("get", name, tf.raw_ops.Unstage)

    def peek(self, index: Any, name: str | None = None) -> Any:
        """Reads element number `index` (0 is the oldest) and leaves it; it waits until there are so many.

        Raises:
          ValueError: index is negative, or not below the capacity, where it would wait for ever.
          TypeError: index is no integer.
        """
        return self._take("peek", name, tf.raw_ops.StagePeek, index=self._checked_index(index))

    def misfit_op(self) -> Any:
        """An op, made once a graph, that fails one `get` that waits: it puts an element of too many components.

        Nothing else wakes an Unstage without letting its step run on values that nobody staged.
        """

        def make() -> Any:
            values = [tf.constant(False)] * (len(self.dtypes) + 1)
            return self._on_store(MISFIT, None, tf.raw_ops.Stage, values=values)

        return self._once(MISFIT, make)

    def _take(self, what: str, name: str | None, raw: Any, **arguments: Any) -> Any:
        with self._in_graph(what, name):
            tensors = self._on_store(what, name, raw, dtypes=self.dtypes, **arguments)
            return self._element(tensors, range(len(self.dtypes)))

    def _check_complete(self, indices: Sequence[int]) -> None:
        missing = [index for index in range(len(self.dtypes)) if index not in indices]
        if missing or len(indices) != len(self.dtypes):
            which = f" ({', '.join(map(self._declared.label, missing))} missing)" if missing else ""
            raise SpecError(
                f"{self}: put got {_counted(len(indices), 'value')}, declared are "
                f"{_counted(len(self.dtypes), 'component')}{which}. Put all components of an element at once."
            )

    def _checked_index(self, index: Any) -> Any:
        if tf.is_tensor(index):
            return tf.cast(index, tf.int32)
        number = as_int(index)
        if number is None:
            raise TypeError(f"{self}: peek takes the index (the number) of an element, it got {shown(index)}.")
        if not 0 <= number <= INT32_MAX or (self.capacity and number >= self.capacity):
            most = f"the capacity, {self.capacity}" if self.capacity else "2**31"
            raise ValueError(
                f"{self}: peek({shown(number)}) would wait for ever; the index must be 0 or more and below {most}."
            )
        return number


def _checked_name(what: str, shared_name: Any) -> str:
    if not isinstance(shared_name, str):
        raise ValueError(  # a TypeError by rights; upstream raises this
            f"{what}: shared_name must be a string, it got {shown(shared_name)} ({type(shared_name).__name__})."
        )
    if not shared_name:
        raise ValueError(f"{what}: shared_name is empty; leave it out for a store that is not shared.")
    return shared_name


def _op_name(name: str) -> str:
    """`name` with what TensorFlow takes no op for replaced, so that any shared_name will do."""
    allowed = re.sub(r"[^A-Za-z0-9_.\\/-]", "_", name)
    return allowed if re.match(r"[A-Za-z0-9.]", allowed) else f"area{allowed}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
