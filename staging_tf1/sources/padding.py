"""Batches of records whose sizes differ, padded to a common size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT32_MAX, as_int, shown
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.stacking import record_arrays, record_specs, refuse_empty_list
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_up_to, named_by_path, pack
from staging_tf1.spec.arrays import as_array, describe

_Array = np.ndarray[Any, Any]
_TO = "None, a size, a tuple of them, or a dict of these by component"
_CALLER = "pad()"


class _Component(NamedTuple):
    path: str
    spec: ArraySpec
    # For each dimension, whether sizes may differ.
    varies: tuple[bool, ...]
    # For each dimension, the size to pad to; None for the longest of the batch.
    target: tuple[int | None, ...]
    value: Any

    @property
    def masked(self) -> int:
        """How many dimensions of a record a mask has: those up to the last one that varies."""
        return max((axis for axis, varies in enumerate(self.varies, 1) if varies), default=0)


class Padding:
    """Pads records to a size, or to the longest of their batch. See `RecordSource.pad`."""

    def __init__(self, to: Any, value: Any, mask: bool = False) -> None:
        for size in to.values() if isinstance(to, Mapping) else (to,):
            _check_size(to, size)
        for filler in value.values() if isinstance(value, Mapping) else (value,):
            if not isinstance(filler, (int, float, complex, str, bytes, np.generic)):
                arguments.refuse(_CALLER, "value", value, "a number or string, or a dict of them by component")
        self.to, self.value, self.mask = to, value, arguments.flag(_CALLER, "mask", mask)

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
                raise ValueError(f"{_CALLER} names unknown component {unknown[0]!r}, expected one of {paths}.")
        components = [self._component(path, spec) for path, spec in zip(paths, flatten(specs))]
        for component, (path, value) in zip(components, flatten_up_to(specs, first, where)):
            if any(component.varies):
                refuse_empty_list(value, f"{where}: {component_name(path)}")
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
                f"{_CALLER} got to={shown(self.to)}, but {component_name(path)} of a record is "
                f"{describe(spec.dtype, dims)}. Give one size for each dimension."
            )
        return _Component(path, spec, varies, tuple(sizes), self._value_for(path, spec))

    def _value_for(self, path: str, spec: ArraySpec) -> Any:
        value = self.value.get(path, 0) if isinstance(self.value, Mapping) else self.value
        if spec.dtype.hasobject:
            return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""
        if isinstance(value, (str, bytes)):
            raise ValueError(f"{_CALLER} got value={shown(value)}, but {component_name(path)} is {spec.dtype.name}.")
        return as_array(value, spec.dtype, f"{_CALLER} got value={shown(value)}: {component_name(path)}")


def _check_size(to: Any, size: Any) -> None:
    for dim in size if isinstance(size, tuple) else (size,):
        if dim is not None:
            if as_int(dim) is None:
                arguments.refuse(_CALLER, "to", to, _TO)
            arguments.whole(_CALLER, "to", dim, 0, INT32_MAX)


class PaddingPlan:
    """How to pad records of one structure."""

    def __init__(self, like: Any, components: Sequence[_Component], mask: bool) -> None:
        self._like, self._components, self._mask = like, components, mask

    def spec(self, batch_dim: int | None) -> Any:
        """Return the spec of padded batches."""
        specs = [dataclasses.replace(part.spec, shape=(batch_dim, *part.target)) for part in self._components]
        padded = pack(self._like, specs)
        if not self._mask:
            return padded
        flags = np.dtype(bool)
        masks = [ArraySpec((batch_dim, *part.target[: part.masked]), flags) for part in self._components]
        return named_by_path((padded, pack(self._like, masks)))

    def stack(self, records: Sequence[tuple[int, Any]], describe_record: Callable[[int], str]) -> Any:
        """Pad and stack pairs of number and record. Raises SpecError for a record that does not fit."""
        specs = [component.spec for component in self._components]
        rows = []
        for number, record in records:
            where = describe_record(number)
            arrays = [array for _, array in record_arrays(self._like, specs, record, where)]
            for component, array in zip(self._components, arrays):
                _check_fits(component, array, where)
            rows.append(arrays)
        columns = [[row[i] for row in rows] for i in range(len(specs))]
        padded = list(map(_padded, self._components, columns))
        batch = pack(self._like, padded)
        if not self._mask:
            return batch
        return batch, pack(self._like, map(_mask, self._components, columns, padded))


def _check_fits(component: _Component, array: _Array, where: str) -> None:
    where, got = f"{where}: {component_name(component.path)}", describe(array.dtype, array.shape)
    if array.dtype != component.spec.dtype or array.ndim != len(component.target):
        expected = describe(component.spec.dtype, (component.spec.shape or ())[1:])
        raise SpecError(f"{where} is {got}, but {expected} for the first record.")
    for size, target, varies in zip(array.shape, component.target, component.varies):
        if target is not None and size > target and varies:
            raise SpecError(
                f"{where} is {got}, longer than the {target} that pad(to=...) gives. Crop the record, or pad to a "
                "larger size."
            )
        if not varies and size != target:
            named = f"{{{component.path!r}: (None, None)}}" if component.path else "(None, None)"
            raise SpecError(
                f"{where} is {got}, expected {describe(component.spec.dtype, component.target)}. To pad other "
                f"dimensions than the first, name them: pad(to={named})."
            )


def _padded(component: _Component, arrays: Sequence[_Array]) -> _Array:
    shape = tuple(
        max((array.shape[axis] for array in arrays), default=0) if target is None else target
        for axis, target in enumerate(component.target)
    )
    batch = aligned_empty((len(arrays), *shape), component.spec.dtype)
    batch[...] = component.value
    for row, array in enumerate(arrays):
        corner: tuple[Any, ...] = (row, *(slice(size) for size in array.shape))
        batch[corner] = array if array.ndim else array[()]
    return batch


def _mask(component: _Component, arrays: Sequence[_Array], padded: _Array) -> _Array:
    """Return which values of a padded component are a record's."""
    mask = aligned_empty(padded.shape[: 1 + component.masked], np.dtype(bool))
    mask[...] = False
    for row, array in enumerate(arrays):
        corner: tuple[Any, ...] = (row, *(slice(size) for size in array.shape[: component.masked]))
        mask[corner] = True
    return mask
