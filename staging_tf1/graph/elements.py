"""What an area declares about its elements; and the values of a put, checked against that, then made tensors.

All of it is checked before any op is made.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staging_tf1._tf import FuncGraph, tf
from staging_tf1.arguments import INT64_MAX, endless, listed, shown, whole
from staging_tf1.errors import SpecError
from staging_tf1.spec.arrays import as_array, kind_of

__all__ = ["Declaration", "declare", "element_indices", "is_variable", "shape_text", "to_tensors", "types_of"]

# With a memory limit, the kernels sum the bytes of an element in a C `int`.
_COUNTABLE_BYTES = 2**31 - 1
# The Python types that a dtype holds without loss. As in tf.constant, a bool is not a number.
_PYTHON_TYPES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("is_bool", (bool,)),
    ("is_integer", (int,)),
    ("is_floating", (int, float)),
    ("is_complex", (int, float, complex)),
)


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
        """Return a component's name for messages."""
        return f"component {self.names[index]!r}" if self.names else f"component {index}"


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
    check_fits(caller, declaration, zip(declaration.dtypes, declaration.shapes, strict=True))
    return declaration


def types_of(tensors: Any, names: Any) -> tuple[list[Any], list[Any], Any]:
    """Return the (dtypes, shapes, names) of a value with dtype and shape, or of a list, tuple or dict of values."""
    if isinstance(tensors, Mapping):
        if names is not None:
            raise ValueError("from_tensors got a dict and names; the keys of a dict are the names, leave names out.")
        if not all(isinstance(key, str) for key in tensors):
            raise TypeError(f"from_tensors got a dict with keys {list(tensors)}; component names must be strings.")
        names = sorted(tensors)
        values = [tensors[key] for key in names]
    else:
        values = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    if not values:
        raise ValueError("from_tensors got no tensors; an element needs at least one component.")
    for index, value in enumerate(values):
        if not (hasattr(value, "dtype") and hasattr(value, "shape")) or isinstance(
            value, (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)
        ):
            label = names[index] if isinstance(names, (list, tuple)) and index < len(names) else index
            raise TypeError(
                f"from_tensors takes dense tensors, but component {label!r} is a {type(value).__name__}. Use "
                "tf.convert_to_tensor for Python values; staged() takes nests, SparseTensor and RaggedTensor."
            )
    return [_given_dtype(value) for value in values], [tf.TensorShape(value.shape) for value in values], names


def _given_dtype(value: Any) -> Any:
    try:
        return tf.as_dtype(value.dtype).base_dtype
    except TypeError:
        raise TypeError(
            f"from_tensors got tensors of dtype {value.dtype}, which no tensor can have. Convert it, for example "
            f"array.astype(np.int64)."
        ) from None


def check_fits(caller: str, declaration: Declaration, components: Iterable[tuple[Any, Any]]) -> None:
    """Raise SpecError for elements larger than the memory limit, or too large for the kernels to count."""
    limit = declaration.memory_limit
    if not limit:
        return
    size = known_bytes(components)
    if size > _COUNTABLE_BYTES:
        raise SpecError(
            f"{caller}: an element has {size} bytes, and TensorFlow miscounts elements of 2 GiB and more against a "
            f"memory_limit (here {limit} bytes). Limit the area with capacity= instead."
        )
    if size > limit:
        raise SpecError(
            f"{caller}: an element has {size} bytes, more than memory_limit={limit}, so no put could ever succeed. "
            f"Raise memory_limit to {size} times the number of elements to hold, or use capacity=."
        )


def known_bytes(components: Iterable[tuple[Any, Any]]) -> int:
    """Return the bytes of all components with a static shape. Strings have no static length and count as 0."""
    total = 0
    for dtype, shape in components:
        if shape.is_fully_defined() and dtype not in (tf.string, tf.resource, tf.variant):
            total += int(shape.num_elements()) * int(dtype.size)
    return total


def shape_text(shape: Any) -> str:
    """Format a static shape for messages.

    >>> shape_text(tf.TensorShape([None, 28, 28])), shape_text(tf.TensorShape(None))
    ('[?, 28, 28]', 'of unknown shape')
    """
    if shape.rank is None:
        return "of unknown shape"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape.as_list()) + "]"


def _dtypes(caller: str, dtypes: Any) -> list[Any]:
    if tf.is_tensor(dtypes) or (isinstance(dtypes, (list, tuple)) and any(map(tf.is_tensor, dtypes))):
        raise TypeError(
            f"{caller} got tensors as dtypes, expected a list such as [tf.float32]. To take dtypes and shapes from "
            f"tensors, write {caller}.from_tensors([...])."
        )
    if isinstance(dtypes, (tf.DType, str, type)):
        name = _dtype_name(dtypes)
        raise TypeError(f"{caller} got a bare dtype, expected a list with one dtype per component. Write [{name}].")
    given = listed(caller, "dtypes", dtypes, "a list with one dtype per component, such as [tf.float32, tf.int64]")
    checked = [_dtype(caller, index, dtype) for index, dtype in enumerate(given)]
    if not checked:
        raise ValueError(f"{caller} got no dtypes; an element needs at least one component.")
    return checked


def _dtype(caller: str, index: int, dtype: Any) -> Any:
    # tf.as_dtype also takes enum numbers: as_dtype(1) and as_dtype(True) are float32.
    if not isinstance(dtype, numbers.Number):
        try:
            return tf.as_dtype(dtype).base_dtype
        except TypeError:
            pass
    raise TypeError(
        f"{caller}: dtypes[{index}] is {shown(dtype)} ({type(dtype).__name__}), expected a tf.DType such as tf.float32."
    )


def _dtype_name(dtype: Any) -> str:
    try:
        return f"tf.{tf.as_dtype(dtype).name}"
    except TypeError:
        return repr(dtype)


def _shapes(caller: str, shapes: Any, count: int) -> list[Any]:
    if shapes is None:
        return [tf.TensorShape(None)] * count
    if isinstance(shapes, tf.TensorShape) or not isinstance(shapes, Sequence) or isinstance(shapes, (str, bytes)):
        raise TypeError(
            f"{caller}: shapes must be a list with one shape per component, such as [[32, 10], [32]]; got "
            f"{shown(shapes)}."
        )
    if len(shapes) != count:
        raise ValueError(
            f"{caller}: shapes has {len(shapes)} entries, dtypes has {count}; give one shape per component, None for "
            "an unknown one."
        )
    checked = []
    for index, shape in enumerate(shapes):
        try:
            checked.append(tf.TensorShape(shape))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{caller}: shapes[{index}] is {shown(shape)}, which is not a shape ({error}).") from error
    return checked


def _names(caller: str, names: Any, count: int) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
        raise TypeError(f"{caller}: names must be a list with one string per component, got {shown(names)}.")
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{caller}: names must be strings, got {shown(list(names))}.")
    if len(names) != count:
        raise ValueError(f"{caller}: names has {len(names)} entries, dtypes has {count}; give one name per component.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{caller}: names must be unique, got {twice[0]!r} more than once in {list(names)}.")
    return list(names)


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
    listed = list(values) if isinstance(values, (list, tuple)) else [values]
    return listed, list(range(len(listed)))


def to_tensors(
    area: str, declared: Declaration, graph: Any, values: Sequence[Any], indices: Sequence[int]
) -> list[Any]:
    """Convert `values` to tensors of the declared dtypes. Make no op unless all of them fit.

    Args:
      area: the area's name for messages.
      declared: its declaration.
      graph: the graph of the put op.
      values: one value per component.
      indices: the index of each value's component.

    Raises:
      SpecError: the dtype, shape, graph or size of a value does not fit.
    """
    checked = [_checked(area, declared, i, graph, v) for v, i in zip(values, indices, strict=True)]
    shapes = [tf.TensorShape(value.shape) for value in checked]
    check_fits(area, declared, zip([declared.dtypes[i] for i in indices], shapes, strict=True))
    return [_convert(v, declared.dtypes[i], f"component_{i}") for v, i in zip(checked, indices, strict=True)]


def is_variable(value: Any) -> bool:
    """Whether `value` is a variable of either kind. `tf.Variable` is only a base of reference variables."""
    return bool(tf.is_tensor(value)) and hasattr(value, "read_value")


def _checked(area: str, declared: Declaration, index: int, graph: Any, value: Any) -> Any:
    """Return `value`, or a Python value as an array, if it fits component `index`."""
    where = f"{area}: {declared.label(index)}"
    dtype, shape = declared.dtypes[index], declared.shapes[index]
    wanted = f"declared {dtype.name} {shape_text(shape)}"
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)):
        raise SpecError(
            f"{where} got a {type(value).__name__}, {wanted}. An area holds dense tensors; staged() takes SparseTensor "
            "and RaggedTensor."
        )
    # An eager tensor belongs to no graph, but its value is known.
    if not _is_symbolic(value) or (hasattr(value, "numpy") and not is_variable(value)):
        is_python = type(value).__module__ == "builtins" and not _has_array(value)
        value = _array(where, wanted, dtype, value) if is_python else as_array(value, None, where)
    got = f"got {_described(value)}"
    if _dtype_of(value) != dtype:
        raise SpecError(f"{where} {got}, {wanted}. {_cast_cure(declared, index, value)}")
    if not tf.TensorShape(value.shape).is_compatible_with(shape):
        raise SpecError(
            f"{where} {got}, {wanted}. Reshape it, or declare the shape, or the dimensions that vary, as None."
        )
    _check_graph(where, graph, value)
    return value


def _array(where: str, wanted: str, dtype: Any, value: Any) -> Any:
    """Convert a Python value to an array of the declared dtype, without loss."""
    got = f"got {shown(value)[:60]} (a Python {type(value).__name__})"
    try:
        leaves = list(_leaves(value))
    except RecursionError:
        raise SpecError(f"{where} got {kind_of(value)} that {endless(value)}, {wanted}. Put an array.") from None
    if any(_is_symbolic(leaf) for leaf in leaves):
        raise SpecError(f"{where} got a {type(value).__name__} of tensors, {wanted}. Combine them: tf.stack([...]).")
    try:
        if any(map(_has_array, leaves)):
            return as_array(value, None, where)
        if not all(_may_stand_for(leaf, dtype) for leaf in leaves):
            raise SpecError(f"{where} {got}, {wanted}. Put a value of that dtype, or declare another dtype.")
        if dtype == tf.string:
            return as_array(value, np.dtype(object), where)
        if dtype.is_floating and {int, float}.issubset(map(type, leaves)):
            # numpy would convert the integers to floats before `_lossless` compares them.
            return as_array(value, np.dtype(dtype.as_numpy_dtype), where)
        exact = np.array(value)
        if exact.dtype.kind == "f" and dtype.is_integer:
            # If one integer exceeds int64, numpy converts all of them to floats, which drop digits.
            exact = np.array(value, object)
        with np.errstate(over="ignore", invalid="ignore"):
            array = exact.astype(dtype.as_numpy_dtype)
    except SpecError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise SpecError(f"{where} {got}, {wanted}. It cannot be converted to an array ({error}).") from error
    if not _lossless(exact, array):
        raise SpecError(f"{where} {got}, {wanted}. The value does not fit into {dtype.name}.")
    return array


def _has_array(value: Any) -> bool:
    return hasattr(value, "__array__")


def _is_symbolic(value: Any) -> bool:
    # A PartitionedVariable is not a tensor, but has a dtype and a shape, and converts to one.
    return bool(tf.is_tensor(value)) or hasattr(value, "as_tensor")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _may_stand_for(leaf: Any, dtype: Any) -> bool:
    if dtype == tf.string:
        return isinstance(leaf, (str, bytes))
    for trait, types in _PYTHON_TYPES:
        if getattr(dtype, trait):
            return isinstance(leaf, types) and (bool in types or not isinstance(leaf, bool))
    return False


def _lossless(exact: Any, array: Any) -> bool:
    """Whether integers kept their value and finite numbers stayed finite. Fractions may be rounded."""
    if exact.dtype.kind in "iuO":
        return bool(np.all(array.astype(object) == exact.astype(object)))
    if exact.dtype.kind in "fc":
        return bool(np.all(np.isfinite(array) == np.isfinite(exact)))
    return True


def _dtype_of(value: Any) -> Any:
    try:
        # As in tf.constant, arrays of objects, str or bytes are strings.
        return tf.as_dtype(value.dtype).base_dtype
    except TypeError:
        return None


def _described(value: Any) -> str:
    dtype = _dtype_of(value)
    text = f"{dtype.name if dtype else value.dtype} {shape_text(tf.TensorShape(value.shape))}"
    return f"{text} (a numpy value)" if isinstance(value, (np.ndarray, np.generic)) else text


def _cast_cure(declared: Declaration, index: int, value: Any) -> str:
    name = declared.names[index] if declared.names else "value"
    dtype = declared.dtypes[index]
    if isinstance(value, (np.ndarray, np.generic)):
        return f"Convert it: {name}.astype({dtype.name!r}), or let staged() take the spec from the values."
    if dtype == tf.string or _dtype_of(value) == tf.string:
        return "Strings cannot be cast; declare the other dtype, or let staged() take the spec from the tensors."
    return f"Cast it: tf.cast({name}, tf.{dtype.name}), or let staged() take the spec from the tensors."


def _check_graph(where: str, graph: Any, value: Any) -> None:
    home = getattr(value, "graph", None)
    if home is None and is_variable(value):
        raise SpecError(
            f"{where} got an eager variable, which belongs to no graph. Build it within `with graph.as_default():`, or "
            "put its value."
        )
    if home is None:
        return
    inside = graph
    while inside is not home:
        if not isinstance(inside, FuncGraph):
            raise SpecError(
                f"{where} got {value.name!r}, which belongs to a different graph than the area. Build both within the "
                "same `with graph.as_default():`."
            )
        inside = inside.outer_graph


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
