"""Batches of records whose sizes differ, padded to a common size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT32_MAX, as_int, shown
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.stacking import record_arrays, record_specs
from staging_tf1.spec import ArraySpec, component_name, flatten, named_by_path, pack
from staging_tf1.spec.arrays import as_array, describe

__all__ = ["Padding"]

_TO = "None, a size, a tuple of them, or a dict of these by component"
_WHAT = "pad()"


class _Component(NamedTuple):
    """How one component is padded."""

    path: str
    spec: ArraySpec
    # For each dimension, whether sizes may differ; and the size to pad to, None for the longest of the batch.
    varies: tuple[bool, ...]
    target: tuple[int | None, ...]
    value: Any

    @property
    def masked(self) -> int:
        """How many dimensions of a record a mask has: those up to the last one that varies."""
        return max((axis for axis, varies in enumerate(self.varies, 1) if varies), default=0)


class Padding:
    """Pads records to a size, or to the longest of their batch. See `RecordSource.pad`."""

    def __init__(self, to: Any, value: Any, mask: bool = False) -> None:
        for each in to.values() if isinstance(to, Mapping) else (to,):
            _check_size(to, each)
        for each in value.values() if isinstance(value, Mapping) else (value,):
            if not isinstance(each, (int, float, complex, str, bytes, np.generic)):
                arguments.refuse(_WHAT, "value", value, "a number or string, or a dict of them by component")
        self.to, self.value, self.mask = to, value, arguments.flag(_WHAT, "mask", mask)

    # For messages.
    method, result = "pad()", "padded"

    def __str__(self) -> str:
        return f"pad(to={self.to!r}, value={self.value!r})"

    def planned(self, first: Any, where: str) -> PaddingPlan:
        """Return how to pad records like `first`. Raises ValueError if `to` or `value` does not fit them."""
        specs = record_specs(first, where)
        paths = [spec.name or "" for spec in flatten(specs)]
        for argument in (self.to, self.value):
            unknown = [key for key in argument if key not in paths] if isinstance(argument, Mapping) else []
            if unknown:
                raise ValueError(f"{_WHAT} names unknown component {unknown[0]!r}, expected one of {paths}.")
        components = [self._component(path, spec) for path, spec in zip(paths, flatten(specs))]
        return PaddingPlan(specs, components, self.mask)

    def _component(self, path: str, spec: ArraySpec) -> _Component:
        dims = (spec.shape or ())[1:]
        if isinstance(self.to, Mapping):
            sizes = self.to.get(path, dims)
        else:
            sizes = self.to if dims or isinstance(self.to, tuple) else ()
        if not isinstance(sizes, tuple):
            sizes = (sizes, *dims[1:])
            varies = (True, *(False for _ in dims[1:]))
        else:
            varies = tuple(not isinstance(self.to, Mapping) or path in self.to for _ in dims)
        if len(sizes) != len(dims):
            raise ValueError(
                f"{_WHAT} got to={shown(self.to)}, but {component_name(path)} of a record is "
                f"{describe(spec.dtype, dims)}. Give one size for each dimension."
            )
        return _Component(path, spec, varies, tuple(sizes), self._value_for(path, spec))

    def _value_for(self, path: str, spec: ArraySpec) -> Any:
        value = self.value.get(path, 0) if isinstance(self.value, Mapping) else self.value
        if spec.dtype.hasobject:
            return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""
        if isinstance(value, (str, bytes)):
            raise ValueError(f"{_WHAT} got value={shown(value)}, but {component_name(path)} is {spec.dtype.name}.")
        return as_array(value, spec.dtype, f"{_WHAT} got value={shown(value)}: {component_name(path)}")


def _check_size(to: Any, size: Any) -> None:
    for each in size if isinstance(size, tuple) else (size,):
        if each is not None:
            if as_int(each) is None:
                arguments.refuse(_WHAT, "to", to, _TO)
            arguments.whole(_WHAT, "to", each, 0, INT32_MAX)


class PaddingPlan:
    """How to pad records of one structure."""

    def __init__(self, like: Any, components: Sequence[_Component], mask: bool) -> None:
        self._like, self._components, self._mask = like, components, mask

    def spec(self, batch_dim: int | None) -> Any:
        """Return the spec of padded batches."""
        padded = pack(
            self._like,
            [ArraySpec((batch_dim, *each.target), each.spec.dtype, each.spec.name) for each in self._components],
        )
        if not self._mask:
            return padded
        flags = np.dtype(bool)
        masks = [ArraySpec((batch_dim, *component.target[: component.masked]), flags) for component in self._components]
        return named_by_path((padded, pack(self._like, masks)))

    def stack(self, records: Sequence[tuple[int, Any]], describe_record: Callable[[int], str]) -> Any:
        """Pad and stack pairs of number and record. Raises SpecError for a record that does not fit."""
        specs = [component.spec for component in self._components]
        rows = []
        for number, record in records:
            where = describe_record(number)
            arrays = [array for _, array in record_arrays(self._like, specs, record, where)]
            for each, array in zip(self._components, arrays):
                _check_fits(each, array, where)
            rows.append(arrays)
        columns = [[row[i] for row in rows] for i in range(len(specs))]
        padded = [_padded(each, column) for each, column in zip(self._components, columns)]
        batch = pack(self._like, padded)
        if not self._mask:
            return batch
        masks = [_mask(each, column, array.shape) for each, column, array in zip(self._components, columns, padded)]
        return batch, pack(self._like, masks)


def _check_fits(each: _Component, array: np.ndarray[Any, Any], where: str) -> None:
    got = describe(array.dtype, array.shape)
    if array.dtype != each.spec.dtype or array.ndim != len(each.target):
        expected = describe(each.spec.dtype, (each.spec.shape or ())[1:])
        raise SpecError(f"{where}: {component_name(each.path)} is {got}, but {expected} for the first record.")
    for size, target, varies in zip(array.shape, each.target, each.varies):
        if target is not None and size > target and varies:
            raise SpecError(
                f"{where}: {component_name(each.path)} is {got}, longer than the {target} that pad(to=...) gives. Crop "
                "the record, or pad to a larger size."
            )
        if not varies and size != target:
            raise SpecError(
                f"{where}: {component_name(each.path)} is {got}, expected {describe(each.spec.dtype, each.target)}. To "
                f"pad other dimensions than the first, name them: pad(to={{{each.path!r}: (None, None)}})."
            )


def _padded(each: _Component, arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    shape = tuple(
        max((array.shape[axis] for array in arrays), default=0) if target is None else target
        for axis, target in enumerate(each.target)
    )
    batch = aligned_empty((len(arrays), *shape), each.spec.dtype)
    batch[...] = each.value
    for row, array in enumerate(arrays):
        corner: tuple[Any, ...] = (row, *(slice(size) for size in array.shape))
        batch[corner] = array if array.ndim else array[()]
    return batch


def _mask(each: _Component, arrays: Sequence[np.ndarray[Any, Any]], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return which values of a padded component are a record's."""
    mask = aligned_empty(shape[: 1 + each.masked], np.dtype(bool))
    mask[...] = False
    for row, array in enumerate(arrays):
        corner: tuple[Any, ...] = (row, *(slice(size) for size in array.shape[: each.masked]))
        mask[corner] = True
    return mask
