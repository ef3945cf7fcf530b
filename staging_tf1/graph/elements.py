"""What an area declares about its elements; and the values of a put, checked against that, then made tensors.

All of it is checked before any op is made.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staging_tf1._tf import is_inside, tf
from staging_tf1.arguments import INT64_MAX, instance, listed, refuse, shown, whole
from staging_tf1.arguments import names as strings
from staging_tf1.errors import SpecError
from staging_tf1.spec.arrays import as_array, as_numpy_dtype, describe, leaves_of
from staging_tf1.spec.conform import each_component

# With a memory limit, the kernels sum the bytes of an element in a C `int`.
_COUNTABLE_BYTES = 2**31 - 1
_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)


@dataclass(frozen=True)
class Declaration:
    """The constructor arguments of an area, checked and normalized."""

    dtypes: list[Any]
    shapes: list[Any]
    # None if the components have no names. Elements are then lists, otherwise dicts.
    names: list[str] | None
    # Elements; 0 is unbounded.
    capacity: int
    # Bytes; 0 is unbounded.
    memory_limit: int

    def label(self, index: int) -> str:
        return f"component {self.names[index] if self.names else index!r}"


def declare(caller: str, dtypes: Any, shapes: Any, names: Any, capacity: Any, memory_limit: Any) -> Declaration:
    """Check the constructor arguments of an area; `caller` is the name of its class."""
    checked_dtypes = _dtypes(caller, dtypes)
    declaration = Declaration(
        dtypes=checked_dtypes,
        shapes=_shapes(caller, shapes, len(checked_dtypes)),
        names=_names(caller, names, len(checked_dtypes)),
        capacity=whole(caller, "capacity", capacity, 0, INT64_MAX, "elements; 0 is unbounded"),
        memory_limit=whole(caller, "memory_limit", memory_limit, 0, INT64_MAX, "bytes; 0 is unbounded"),
    )
    _check_size(caller, declaration, zip(declaration.dtypes, declaration.shapes, strict=True))
    return declaration


def _dtypes(caller: str, dtypes: Any) -> list[Any]:
    cure = f"such as [tf.float32, tf.int64]; {caller}.from_tensors([...]) takes tensors"
    given = listed(caller, "dtypes", dtypes, f"a list with one dtype per component, {cure}")
    if not given:
        raise ValueError(f"{caller} got no dtypes; an element needs at least one component.")
    return [_dtype(caller, f"dtypes[{index}]", dtype, f"a list of dtypes, {cure}") for index, dtype in enumerate(given)]


def _dtype(caller: str, argument: str, dtype: Any, expected: str) -> Any:
    # tf.as_dtype also takes enum numbers: as_dtype(1) and as_dtype(True) are float32.
    if not isinstance(dtype, numbers.Number):
        try:
            return tf.as_dtype(dtype).base_dtype
        except TypeError:
            pass
    refuse(caller, argument, dtype, expected)


def _shapes(caller: str, shapes: Any, count: int) -> list[Any]:
    if shapes is None:
        return [tf.TensorShape(None)] * count
    expected = "a list with one shape per component, such as [[32, 10], None]"
    _check_count(caller, "shapes", instance(caller, "shapes", shapes, (list, tuple), expected), count)
    try:
        return [tf.TensorShape(shape) for shape in shapes]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{caller} got shapes={shown(shapes)}, expected {expected} ({error}).") from error


def _names(caller: str, names: Any, count: int) -> list[str] | None:
    if names is None:
        return None
    expected = "a list with one string per component, each of them once"
    checked = strings(caller, "names", instance(caller, "names", names, (list, tuple), expected), expected)
    _check_count(caller, "names", checked, count)
    if len(set(checked)) < count:
        refuse(caller, "names", names, expected, ValueError)
    return checked


def _check_count(caller: str, argument: str, values: Sequence[Any], count: int) -> None:
    if len(values) != count:
        raise ValueError(f"{caller}: {argument} has {len(values)} entries, dtypes has {count}; give one per component.")


def _check_size(caller: str, declared: Declaration, components: Iterable[tuple[Any, Any]]) -> None:
    """Raise SpecError for elements larger than the memory limit, or too large for the kernels to count."""
    size = sum(
        int(shape.num_elements()) * int(dtype.size)
        for dtype, shape in components
        if shape.is_fully_defined() and dtype not in (tf.string, tf.resource, tf.variant)
    )
    limit = declared.memory_limit
    if limit and size > min(limit, _COUNTABLE_BYTES):
        problem, cure = f"more than memory_limit={limit}, so no put could ever succeed", "Raise memory_limit, or use"
        if size > _COUNTABLE_BYTES:
            problem, cure = f"and TensorFlow miscounts 2 GiB and more against memory_limit={limit}", "Use"
        raise SpecError(f"{caller}: an element has {size} bytes, {problem}. {cure} capacity=.")


def types_of(tensors: Any, names: Any) -> tuple[list[Any], list[Any], Any]:
    """Return the (dtypes, shapes, names) of a value with dtype and shape, or of a list, tuple or dict of values."""
    if isinstance(tensors, Mapping):
        if names is not None:
            raise ValueError("from_tensors got a dict and names; the keys of a dict are the names, leave names out.")
        if not all(isinstance(key, str) for key in tensors):
            raise TypeError(f"from_tensors got a dict with keys {list(tensors)}; component names must be strings.")
        names = sorted(tensors)
        tensors = [tensors[key] for key in names]
    values = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    if not values:
        raise ValueError("from_tensors got no tensors; an element needs at least one component.")
    for index, value in enumerate(values):
        if not (hasattr(value, "dtype") and hasattr(value, "shape")) or isinstance(value, _COMPOSITES):
            label = names[index] if isinstance(names, (list, tuple)) and index < len(names) else index
            raise TypeError(
                f"from_tensors takes dense tensors, but component {label!r} is a {type(value).__name__}. Use "
                "tf.convert_to_tensor for Python values; staged() takes nests, SparseTensor and RaggedTensor."
            )
    expected = "a dtype that tensors have. Convert it, for example array.astype(np.int64)"
    dtypes = [_dtype("from_tensors", "dtype", value.dtype, expected) for value in values]
    return dtypes, [tf.TensorShape(value.shape) for value in values], names


def element_indices(area: str, declared: Declaration, values: Any) -> tuple[list[Any], list[int]]:
    """Return the values of a put in the order of their components, and the indices of those components."""
    if isinstance(values, Mapping):
        if not declared.names:
            raise SpecError(
                f"{area}: put got a dict, but the area has no names. Put a list of {len(declared.dtypes)} values, or "
                f"build the area with names={sorted(map(str, values))}."
            )
        unknown = [key for key in values if key not in declared.names]
        if unknown:
            raise SpecError(f"{area}: put got unknown name {unknown[0]!r}, expected {declared.names}.")
        indices = [index for index, name in enumerate(declared.names) if name in values]
        return [values[declared.names[index]] for index in indices], indices
    if declared.names:
        kind = f"a {type(values).__name__}" if isinstance(values, (list, tuple)) else "a single value"
        raise SpecError(f"{area}: put got {kind}, but the area has names. Put a dict with the keys {declared.names}.")
    given = list(values) if isinstance(values, (list, tuple)) else [values]
    return given, list(range(len(given)))


def to_tensors(
    area: str, declared: Declaration, graph: Any, values: Sequence[Any], indices: Sequence[int]
) -> list[Any]:
    """Convert the values of components `indices` to tensors in `graph`. Make no op unless all of them fit.

    Raises SpecError if the dtype, shape, graph or size of a value does not fit. `area` is for messages.
    """
    parts = [(area, declared, i, graph, v) for v, i in zip(values, indices, strict=True)]
    checked = each_component(area, _checked, parts)
    _check_size(area, declared, [(declared.dtypes[i], tf.TensorShape(v.shape)) for v, i in zip(checked, indices)])
    return [_convert(v, declared.dtypes[i], f"component_{i}") for v, i in zip(checked, indices, strict=True)]


def is_variable(value: Any) -> bool:
    """Whether `value` is a variable of either kind. `tf.Variable` is only a base of reference variables."""
    return bool(tf.is_tensor(value)) and hasattr(value, "read_value")


def _checked(area: str, declared: Declaration, index: int, graph: Any, value: Any) -> Any:
    """Return `value`, or an array of it, if it fits component `index`."""
    dtype, shape = declared.dtypes[index], declared.shapes[index]
    where, wanted = f"{area}: {declared.label(index)}", f"declared {describe(dtype, shape)}"
    if isinstance(value, _COMPOSITES):
        raise SpecError(
            f"{where} got a {type(value).__name__}, {wanted}. An area holds dense tensors; staged() takes SparseTensor "
            "and RaggedTensor."
        )
    # An eager tensor belongs to no graph, but its value is known.
    if not _is_symbolic(value) or (hasattr(value, "numpy") and not is_variable(value)):
        value = _array(where, wanted, dtype, value)
    got_dtype = _dtype_of(value)
    got = f"got {describe(got_dtype, value.shape)}"
    if got_dtype != dtype:
        name = declared.names[index] if declared.names else "value"
        raise SpecError(f"{where} {got}, {wanted}. {_cast_cure(name, value, got_dtype, dtype)}")
    if not tf.TensorShape(value.shape).is_compatible_with(shape):
        raise SpecError(f"{where} {got}, {wanted}. Reshape it, or declare None for the dimensions that vary.")
    _check_graph(where, graph, value)
    return value


def _array(where: str, wanted: str, dtype: Any, value: Any) -> Any:
    """Convert a value to an array, a Python value to one of the declared dtype. Raises if it loses something."""
    leaves = list(leaves_of(value))
    if any(map(_is_symbolic, leaves)) and isinstance(value, (list, tuple)):
        raise SpecError(f"{where} got a {type(value).__name__} of tensors, {wanted}. Combine them: tf.stack([...]).")
    if type(value).__module__ != "builtins" or any(hasattr(leaf, "__array__") for leaf in leaves):
        return as_array(value, None, where)
    if not all(_may_stand_for(leaf, dtype) for leaf in leaves):
        raise SpecError(
            f"{where} got {shown(value)[:60]} (a Python {type(value).__name__}), {wanted}. Put a value of that dtype, "
            "or declare another dtype."
        )
    try:
        return as_array(value, as_numpy_dtype(dtype), where)
    except SpecError as error:
        raise SpecError(f"{error} The component is {wanted}.") from error.__cause__


def _is_symbolic(value: Any) -> bool:
    # A PartitionedVariable is not a tensor, but has a dtype and a shape, and converts to one.
    return bool(tf.is_tensor(value)) or hasattr(value, "as_tensor")


def _may_stand_for(leaf: Any, dtype: Any) -> bool:
    """Whether a dtype may hold a Python value, by their kinds. As in tf.constant, a bool is no number."""
    if isinstance(leaf, bool) or dtype.is_bool:
        return isinstance(leaf, bool) and bool(dtype.is_bool)
    numbers_of: dict[str, Any] = {"is_integer": int, "is_floating": (int, float), "is_complex": (int, float, complex)}
    taken = next((types for kind, types in numbers_of.items() if getattr(dtype, kind)), ())
    return isinstance(leaf, (str, bytes) if dtype == tf.string else taken)


def _dtype_of(value: Any) -> Any:
    # As in tf.constant, arrays of objects are strings.
    try:
        return tf.as_dtype(value.dtype).base_dtype
    except TypeError:  # a dtype of numpy that this TensorFlow does not have
        return value.dtype


def _cast_cure(name: str, value: Any, got: Any, dtype: Any) -> str:
    cure = f"Cast it: tf.cast({name}, tf.{dtype.name})"
    if isinstance(value, np.ndarray):
        cure = f"Convert it: {name}.astype({dtype.name!r})"
    elif tf.string in (got, dtype):
        cure = "Strings cannot be cast; declare the other dtype"
    return f"{cure}, or let staged() take the spec from the values."


def _check_graph(where: str, graph: Any, value: Any) -> None:
    home = getattr(value, "graph", None)
    if home is None and is_variable(value):
        raise SpecError(
            f"{where} got an eager variable, which belongs to no graph. Build it within `with graph.as_default():`, or "
            "put its value."
        )
    if home is not None and not is_inside(graph, home):
        raise SpecError(
            f"{where} got {value.name!r}, which belongs to a different graph than the area. Build both within the "
            "same `with graph.as_default():`."
        )


def _convert(value: Any, dtype: Any, name: str) -> Any:
    if is_variable(value):
        value = value.read_value()
    tensor = tf.convert_to_tensor(value, dtype=None if tf.is_tensor(value) else dtype, name=name)
    # An Identity that reads a reference variable shares its buffer: a later assign would change the staged element.
    return tf.raw_ops.DeepCopy(x=tensor) if _reads_reference(tensor) else tensor


def _reads_reference(tensor: Any) -> bool:
    while tensor.dtype == tensor.dtype.base_dtype:
        if tensor.op.type != "Identity":
            return False
        tensor = tensor.op.inputs[0]
    return True
