"""What an area declares about its elements. The arguments are checked before any op is made."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, listed, shown, whole
from staging_tf1.errors import SpecError

__all__ = ["Declaration", "declare", "from_tensors", "known_bytes", "shape_text"]

# With a memory limit, the kernels sum the bytes of an element in a C `int`.
_COUNTABLE_BYTES = 2**31 - 1


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


def declare(
    what: str, dtypes: Any, shapes: Any = None, names: Any = None, capacity: Any = 0, memory_limit: Any = 0
) -> Declaration:
    """Check the constructor arguments of an area; `what` is the name of its class."""
    checked_dtypes = _dtypes(what, dtypes)
    declaration = Declaration(
        dtypes=checked_dtypes,
        shapes=_shapes(what, shapes, len(checked_dtypes)),
        names=_names(what, names, len(checked_dtypes)),
        capacity=whole(what, "capacity", capacity, 0, INT64_MAX, "elements; 0 is unbounded"),
        memory_limit=whole(what, "memory_limit", memory_limit, 0, INT64_MAX, "bytes; 0 is unbounded"),
    )
    check_fits(what, declaration, zip(declaration.dtypes, declaration.shapes, strict=True))
    return declaration


def from_tensors(tensors: Any, names: Any) -> tuple[list[Any], list[Any], Any]:
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
    return [_dtype_of(value) for value in values], [tf.TensorShape(value.shape) for value in values], names


def _dtype_of(value: Any) -> Any:
    try:
        return tf.as_dtype(value.dtype).base_dtype
    except TypeError:
        raise TypeError(
            f"from_tensors got tensors of dtype {value.dtype}, which no tensor can have. Convert it, for example "
            f"array.astype(np.int64)."
        ) from None


def check_fits(what: str, declaration: Declaration, components: Iterable[tuple[Any, Any]]) -> None:
    """Raise SpecError for elements larger than the memory limit, or too large for the kernels to count."""
    limit = declaration.memory_limit
    if not limit:
        return
    size = known_bytes(components)
    if size > _COUNTABLE_BYTES:
        raise SpecError(
            f"{what}: an element has {size} bytes, and TensorFlow miscounts elements of 2 GiB and more against a "
            f"memory_limit (here {limit} bytes). Limit the area with capacity= instead."
        )
    if size > limit:
        raise SpecError(
            f"{what}: an element has {size} bytes, more than memory_limit={limit}, so no put could ever succeed. "
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


def _dtypes(what: str, dtypes: Any) -> list[Any]:
    if tf.is_tensor(dtypes) or (isinstance(dtypes, (list, tuple)) and any(map(tf.is_tensor, dtypes))):
        raise TypeError(
            f"{what} got tensors as dtypes, expected a list such as [tf.float32]. To take dtypes and shapes from "
            f"tensors, write {what}.from_tensors([...])."
        )
    if isinstance(dtypes, (tf.DType, str, type)):
        name = _dtype_name(dtypes)
        raise TypeError(f"{what} got a bare dtype, expected a list with one dtype per component. Write [{name}].")
    given = listed(what, "dtypes", dtypes, "a list with one dtype per component, such as [tf.float32, tf.int64]")
    checked = [_dtype(what, index, dtype) for index, dtype in enumerate(given)]
    if not checked:
        raise ValueError(f"{what} got no dtypes; an element needs at least one component.")
    return checked


def _dtype(what: str, index: int, dtype: Any) -> Any:
    # tf.as_dtype also takes enum numbers: as_dtype(1) and as_dtype(True) are float32.
    if not isinstance(dtype, numbers.Number):
        try:
            return tf.as_dtype(dtype).base_dtype
        except TypeError:
            pass
    raise TypeError(
        f"{what}: dtypes[{index}] is {shown(dtype)} ({type(dtype).__name__}), expected a tf.DType such as tf.float32."
    )


def _dtype_name(dtype: Any) -> str:
    try:
        return f"tf.{tf.as_dtype(dtype).name}"
    except TypeError:
        return repr(dtype)


def _shapes(what: str, shapes: Any, count: int) -> list[Any]:
    if shapes is None:
        return [tf.TensorShape(None)] * count
    if isinstance(shapes, tf.TensorShape) or not isinstance(shapes, Sequence) or isinstance(shapes, (str, bytes)):
        raise TypeError(
            f"{what}: shapes must be a list with one shape per component, such as [[32, 10], [32]]; got "
            f"{shown(shapes)}."
        )
    if len(shapes) != count:
        raise ValueError(
            f"{what}: shapes has {len(shapes)} entries, dtypes has {count}; give one shape per component, None for an "
            "unknown one."
        )
    checked = []
    for index, shape in enumerate(shapes):
        try:
            checked.append(tf.TensorShape(shape))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what}: shapes[{index}] is {shown(shape)}, which is not a shape ({error}).") from error
    return checked


def _names(what: str, names: Any, count: int) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
        raise TypeError(f"{what}: names must be a list with one string per component, got {shown(names)}.")
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what}: names must be strings, got {shown(list(names))}.")
    if len(names) != count:
        raise ValueError(f"{what}: names has {len(names)} entries, dtypes has {count}; give one name per component.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what}: names must be unique, got {twice[0]!r} more than once in {list(names)}.")
    return list(names)
