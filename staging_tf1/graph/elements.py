"""The values of a put: checked against the area's declaration first, converted to tensors second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from staging_tf1._tf import FuncGraph, tf
from staging_tf1.arguments import endless, shown
from staging_tf1.errors import SpecError
from staging_tf1.graph.declared import Declaration, check_fits, shape_text
from staging_tf1.spec.arrays import as_array, kind_of

__all__ = ["element_indices", "is_variable", "to_tensors"]

# The Python types that a dtype holds without loss. As in tf.constant, a bool is not a number.
_PYTHON_TYPES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("is_bool", (bool,)),
    ("is_integer", (int,)),
    ("is_floating", (int, float)),
    ("is_complex", (int, float, complex)),
)


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
