"""`MapStagingArea`: the staging area with keys, as in TensorFlow 1's `data_flow_ops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, as_int, flag, shown
from staging_tf1.errors import SpecError, short_traceback
from staging_tf1.graph.area_base import MISFIT, BaseStagingArea
from staging_tf1.graph.elements import element_indices, is_variable
from staging_tf1.spec.arrays import describe


class MapStagingArea(BaseStagingArea):
    """A store of (int64 key, element) pairs on a device.

    `put(key, values)` adds a pair, `get(key)` is like `dict.pop(key)`, `get()` like `dict.popitem()`, `peek(key)` like
    `dict[key]`. Each waits until it can succeed.

    A put may give only some of the components. The pair is incomplete, and cannot be taken, until the others are put
    under the same key. A get may take only some of the components; the others stay in the area.

    The semantics are those of `data_flow_ops.MapStagingArea` in TensorFlow 1.15.

    Args:
      dtypes: a list with one dtype per component.
      shapes: a list with one static shape per component. None, or None in the list, is an unknown shape.
      names: a list with one string per component; elements are then dicts.
      shared_name: areas with the same name and the same `ordered` share one store.
      ordered: True: `get()` takes the smallest key. False: it takes any key.
      capacity: the maximum number of complete pairs; 0 is unbounded.
      memory_limit: the maximum number of bytes, including incomplete pairs but not keys; 0 is unbounded.

    Raises:
      As `StagingArea`.

    >>> with tf.Graph().as_default(), tf.Session() as sess:
    ...     area = MapStagingArea([tf.string], ordered=True)
    ...     late, early = area.put(9, ["late"]), area.put(1, ["early"])
    ...     first = area.get()
    ...     sess.run([late, early])
    ...     key, element = sess.run(first)
    ...     print(key, element)
    [None, None]
    1 [b'early']
    """

    def __init__(
        self,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        ordered: bool = False,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        self._kind = "OrderedMapStage" if flag("MapStagingArea", "ordered", ordered) else "MapStage"
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)

    @property
    def ordered(self) -> bool:
        """Whether `get()` takes the smallest key."""
        return self._kind == "OrderedMapStage"

    @short_traceback
    def put(self, key: Any, vals: Any, indices: Sequence[Any] | None = None, name: str | None = None) -> Any:
        """Return the op that puts one element, or some of its components, under `key`. Wait while the area is full.

        Args:
          key: an integer or an int64 scalar tensor.
          vals: one value per component in a list or tuple, a single value, or a dict if the area has names. A dict may
            have only some of the names.
          indices: the indices of the components in `vals`, if a list has only some of them.
          name: the name of the op.

        Raises:
          staging_tf1.errors.SpecError: the key, or the number, names, dtypes, shapes or graph of the values do not fit.
          TypeError, ValueError: `indices` are not indices of components.
        """
        with self._in_graph("put", name) as graph:
            listed, numbers = self._put_components(vals, indices)
            key = self._checked_key("put", key)
            with self._put_scope(name) as scope:
                tensors = self._to_tensors(graph, listed, numbers)
                return self._on_store(
                    "put",
                    scope,
                    self._raw("Stage"),
                    key=_key_tensor(key),
                    indices=numbers,
                    values=tensors,
                    dtypes=self.dtypes,
                )

    def get(self, key: Any = None, indices: Sequence[Any] | None = None, name: str | None = None) -> Any:
        """Take the element of `key`. Wait until it is complete.

        Args:
          key: an integer or an int64 scalar tensor. None takes the smallest key of an ordered area, else any key.
          indices: the indices or names of the components to take; None takes all. The others stay in the area.
          name: the name of the op.

        Returns:
          (key, element): `key`, or an int64 scalar tensor if it is None; and the element as from `StagingArea.get`, a
          list, or a dict if the area has names.

        Raises:
          staging_tf1.errors.SpecError: `key` is not an int64 scalar.
          TypeError, ValueError: `indices` are not components of this area.
        """
        with self._in_graph("get", name):
            numbers, dtypes = self._taken_components("get", indices)
            if key is None:
                taken, tensors = self._on_store(
                    "get_nokey", name, self._raw("UnstageNoKey"), indices=numbers, dtypes=dtypes
                )
                return self._to_scope_device([taken])[0], self._element(tensors, numbers)
            tensors = self._keyed("get", name, self._raw("Unstage"), key, numbers, dtypes)
            return key, self._element(tensors, numbers)

    def peek(self, key: Any, indices: Sequence[Any] | None = None, name: str | None = None) -> Any:
        """Read the element of `key`, or its components `indices`, and leave it. Wait until it is complete.

        Returns:
          The element as from `StagingArea.get`, without the key.
        """
        with self._in_graph("peek", name):
            numbers, dtypes = self._taken_components("peek", indices)
            return self._element(self._keyed("peek", name, self._raw("Peek"), key, numbers, dtypes), numbers)

    def incomplete_size(self, name: str | None = None) -> Any:
        """Return the number of keys whose elements lack components, an int32 scalar."""
        return self._on_store("incomplete_size", name, self._raw("IncompleteSize"), dtypes=self.dtypes)

    def misfit_ops(self) -> tuple[tuple[Any, ...], Any]:
        """Return ops, made once per graph, that fail a `get` or `peek` that waits, and the tensor that feeds its key.

        Each puts one component of another dtype than declared, because an element may have the others. A get without a
        key takes any.
        """

        def make() -> tuple[tuple[Any, ...], Any]:
            key, raw = tf.placeholder_with_default(tf.constant(0, tf.int64), []), self._raw("Stage")
            values = [tf.constant(False) if dtype == tf.string else tf.constant("") for dtype in self.dtypes]
            return tuple(
                self._on_store(MISFIT, None, raw, key=key, indices=[index], values=[value], dtypes=self.dtypes)
                for index, value in enumerate(values)
            ), key

        made: tuple[tuple[Any, ...], Any] = self._once(MISFIT, make)
        return made

    def _keyed(self, method: str, name: str | None, raw: Any, key: Any, indices: list[int], dtypes: list[Any]) -> Any:
        key = self._checked_key(method, key)
        return self._on_store(method, name, raw, key=_key_tensor(key), indices=indices, dtypes=dtypes)

    def _put_components(self, vals: Any, indices: Sequence[Any] | None) -> tuple[list[Any], list[int]]:
        listed, numbers = element_indices(str(self), self._declared, vals)
        if not listed:
            raise SpecError(f"{self}: put got no values; put at least one component.")
        if self.names:
            if indices is not None and self._numbers("put", indices) != numbers:
                raise ValueError(
                    f"{self}: put got a dict and indices={list(indices)}; the keys of a dict name the components, "
                    "leave indices out."
                )
            return listed, numbers
        if indices is not None:
            numbers = self._numbers("put", indices)
        elif len(listed) < len(self.dtypes):
            raise SpecError(
                f"{self}: put got {len(listed)} values, expected {len(self.dtypes)}, one per component. To put only "
                "some components, name them: indices=[...]."
            )
        if len(listed) != len(numbers) or len(listed) > len(self.dtypes):
            wanted = len(numbers) if indices is not None else len(self.dtypes)
            raise SpecError(f"{self}: put got {len(listed)} values for {wanted} components.")
        return listed, numbers

    def _taken_components(self, method: str, indices: Sequence[Any] | None) -> tuple[list[int], list[Any]]:
        numbers = list(range(len(self.dtypes))) if indices is None else self._numbers(method, indices)
        return numbers, [self.dtypes[number] for number in numbers]

    def _numbers(self, method: str, indices: Sequence[Any]) -> list[int]:
        """Convert indices or names of components to indices."""
        where = f"{self}: {method} got indices={shown(indices)}"
        if not isinstance(indices, (list, tuple)):
            raise TypeError(f"{where}; they must be a list of component indices or names.")
        if not indices:
            raise ValueError(f"{where}; name at least one component, or leave indices out for all.")
        numbers = [self._number(where, index) for index in indices]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{where}; each component may appear only once.")
        if len({isinstance(index, str) for index in indices}) > 1:
            raise TypeError(f"{where}; give either indices or names, not both.")
        return numbers

    def _number(self, where: str, index: Any) -> int:
        if isinstance(index, str):
            if self.names is None:
                raise ValueError(f"{where}, but the area has no names; use indices.")
            if index not in self.names:
                raise ValueError(f"{where}, but {index!r} is not among its names {self.names}.")
            return self.names.index(index)
        number = as_int(index)
        if number is None:
            raise TypeError(f"{where}; {shown(index)} is neither the index nor the name of a component.")
        if not 0 <= number < len(self.dtypes):
            raise ValueError(f"{where}, but its components are numbered 0 to {len(self.dtypes) - 1}.")
        return number

    def _checked_key(self, method: str, key: Any) -> Any:
        where = f"{self}: {method} takes an int64 scalar as key, got"
        if tf.is_tensor(key):
            if key.dtype.base_dtype != tf.int64:
                raise SpecError(
                    f"{where} {describe(key.dtype.base_dtype, key.shape)}. Cast it: tf.cast(key, tf.int64)."
                )
            if not key.shape.is_compatible_with([]):
                raise SpecError(f"{where} {describe(key.dtype, key.shape)}. Pass one key at a time.")
            return key
        number = as_int(key)
        if number is None:
            raise SpecError(f"{where} {shown(key)} ({type(key).__name__}). Hash it to an integer.")
        if not -INT64_MAX <= number + 1 <= INT64_MAX + 1:
            raise SpecError(f"{where} {shown(key)}. Give a 64-bit integer.")
        return number


def _key_tensor(key: Any) -> Any:
    return key.read_value() if is_variable(key) else tf.convert_to_tensor(key, dtype=tf.int64)
