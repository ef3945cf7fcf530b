"""The staging area with keys, as TensorFlow 1 had it in `data_flow_ops`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, as_int, flag, shown
from staging_tf1.errors import SpecError
from staging_tf1.graph.areas import BaseStagingArea
from staging_tf1.graph.declared import shape_text
from staging_tf1.graph.elements import element_indices, is_variable

__all__ = ["MapStagingArea"]


class MapStagingArea(BaseStagingArea):
    """A store of (int64 key, element) pairs on a device.

    `put(key, values)` adds a pair, `get(key)` is like `dict.pop(key)`, `get()` like `dict.popitem()`,
    `peek(key)` like `dict[key]`; all wait until they can. A put of some components waits aside, among the
    incomplete ones, until the others have been put under the same key; a get of some components leaves the
    others. The semantics are those of TensorFlow 1.15's `data_flow_ops.MapStagingArea`.

    Args:
      dtypes: a list with one dtype a component.
      shapes: one static shape a component; None, or None for a component, when it is unknown.
      names: one string a component; elements then are dicts.
      shared_name: areas of that name, and of the same `ordered`, share one store.
      ordered: `get()` takes the smallest key; else any.
      capacity: the most complete pairs to hold; put waits for room. 0 is unbounded.
      memory_limit: the most bytes to hold, keys excepted, incomplete pairs included. 0 is unbounded.

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

    def put(self, key: Any, vals: Any, indices: Sequence[Any] | None = None, name: str | None = None) -> Any:
        """The op that puts one element, or some components of it, under `key`; it waits while the area is
        full.

        Args:
          key: an integer or an int64 scalar tensor.
          vals: one value a component in a list or tuple, a single value, or a dict when the area has names; a
            dict may have some of the names only.
          indices: the numbers of the components that a list gives, when it gives only some of them.
          name: of the op.

        Raises:
          staging_tf1.errors.SpecError: key, number, names, dtypes, shapes or graph of the values do not fit.
          TypeError, ValueError: indices are no numbers of components.
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
        """Takes the element of `key`, or of the smallest (any, if not ordered) one; it waits until it is
        there.

        Args:
          key: an integer or an int64 scalar tensor; None for a pair of the area's choice.
          indices: numbers, or names, of the components to take; None for all. The others stay in the area.
          name: of the op.

        Returns:
          (key, element): the key as it was given, else an int64 scalar tensor; the element as from
          `StagingArea.get`, a list, or a dict when the area has names.

        Raises:
          staging_tf1.errors.SpecError: key is no int64 scalar.
          TypeError, ValueError: indices are no components of this area.
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
        """Reads the element of `key`, or the components `indices` of it; it waits until it is there.

        Returns:
          The element as from `StagingArea.get`, without the key.
        """
        with self._in_graph("peek", name):
            numbers, dtypes = self._taken_components("peek", indices)
            return self._element(self._keyed("peek", name, self._raw("Peek"), key, numbers, dtypes), numbers)

    def incomplete_size(self, name: str | None = None) -> Any:
        """The number of keys of which some components are still missing: an int32 scalar."""
        return self._on_store("incomplete_size", name, self._raw("IncompleteSize"), dtypes=self.dtypes)

    def _keyed(self, what: str, name: str | None, raw: Any, key: Any, indices: list[int], dtypes: list[Any]) -> Any:
        key = self._checked_key(what, key)
        return self._on_store(what, name, raw, key=_key_tensor(key), indices=indices, dtypes=dtypes)

    def _put_components(self, vals: Any, indices: Sequence[Any] | None) -> tuple[list[Any], list[int]]:
        listed, numbers = element_indices(str(self), self._declared, vals)
        if not listed:
            raise SpecError(f"{self}: put got no values; put at least one component.")
        if self.names:
            if indices is not None and self._numbers("put", indices) != numbers:
                raise ValueError(
                    f"{self}: put got a dict and indices={list(indices)}; a dict's keys say which "
                    "components they are, leave indices out."
                )
            return listed, numbers
        if indices is not None:
            numbers = self._numbers("put", indices)
        elif len(listed) < len(self.dtypes):
            raise SpecError(
                f"{self}: put got {len(listed)} values, declared are {len(self.dtypes)} components. To put "
                "some of them, say which: indices=[...]."
            )
        if len(listed) != len(numbers) or len(listed) > len(self.dtypes):
            wanted = len(numbers) if indices is not None else len(self.dtypes)
            raise SpecError(f"{self}: put got {len(listed)} values for {wanted} components.")
        return listed, numbers

    def _taken_components(self, what: str, indices: Sequence[Any] | None) -> tuple[list[int], list[Any]]:
        numbers = list(range(len(self.dtypes))) if indices is None else self._numbers(what, indices)
        return numbers, [self.dtypes[number] for number in numbers]

    def _numbers(self, what: str, indices: Sequence[Any]) -> list[int]:
        """Component numbers from numbers or names."""
        where = f"{self}: {what} got indices={shown(indices)}"
        if not isinstance(indices, (list, tuple)):
            raise TypeError(f"{where}; they must be a list of component numbers or names.")
        if not indices:
            raise ValueError(f"{where}; name at least one component, or leave indices out for all.")
        numbers = [self._number(where, index) for index in indices]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{where}; each component may stand there once.")
        if len({isinstance(index, str) for index in indices}) > 1:
            raise TypeError(f"{where}; give either numbers or names, not both.")
        return numbers

    def _number(self, where: str, index: Any) -> int:
        if isinstance(index, str):
            if self.names is None:
                raise ValueError(f"{where}, but the area has no names; use numbers.")
            if index not in self.names:
                raise ValueError(f"{where}, but {index!r} is not among its names {self.names}.")
            return self.names.index(index)
        number = as_int(index)
        if number is None:
            raise TypeError(f"{where}; {shown(index)} is neither a component's number nor a name.")
        if not 0 <= number < len(self.dtypes):
            raise ValueError(f"{where}, but its components are numbered 0 to {len(self.dtypes) - 1}.")
        return number

    def _checked_key(self, what: str, key: Any) -> Any:
        where = f"{self}: {what} takes an int64 scalar as key, it got"
        if tf.is_tensor(key):
            if key.dtype.base_dtype != tf.int64:
                raise SpecError(
                    f"{where} {key.dtype.base_dtype.name} {shape_text(key.shape)}. Cast it: tf.cast(key, tf.int64)."
                )
            if not key.shape.is_compatible_with([]):
                raise SpecError(f"{where} int64 {shape_text(key.shape)}. Put the elements one by one.")
            return key
        number = as_int(key)
        if number is None:
            raise SpecError(f"{where} {shown(key)} ({type(key).__name__}). Hash it to an integer.")
        if not -INT64_MAX <= number + 1 <= INT64_MAX + 1:
            raise SpecError(f"{where} {shown(key)}. Give an integer of 64 bits.")
        return number


def _key_tensor(key: Any) -> Any:
    return key.read_value() if is_variable(key) else tf.convert_to_tensor(key, dtype=tf.int64)
