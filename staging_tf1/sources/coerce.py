"""Converts what users pass as a source, and checks sources of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1.arguments import INT64_MAX, refuse, shown, whole
from staging_tf1.sources.access import is_keras_sequence
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.sources.generator import GeneratorSource
from staging_tf1.sources.grain import GrainSource, is_grain
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_with_paths, is_namedtuple, is_structure
from staging_tf1.spec.arrays import kind_of
from staging_tf1.spec.composite import is_composite_spec


def as_source(value: Any) -> Source | StreamSource:
    """Make a source from anything that yields batches.

    That is a source, a Grain pipeline, a generator function, a generator, or an iterable of batches.

    Raises:
      TypeError: `value` yields no batches. Arrays need a batch size: use an `ArraySource`.

    >>> as_source([[1, 2], [3, 4]]).resolve_spec()
    ArraySpec(int64 [?])
    """
    return source_from("as_source()", "value", value)


def source_from(caller: str, argument: str, value: Any) -> Source | StreamSource:
    """Do what `as_source` does, for the `argument` of the function `caller`, both named in messages."""
    if isinstance(value, type) and issubclass(value, (Source, StreamSource)):
        raise TypeError(
            f"{caller} got the class {value.__name__} as {argument}, expected a source. Make one: "
            f"{value.__name__}(...)."
        )
    if isinstance(value, Source):
        _check_numbers(caller, value)
    if isinstance(value, (Source, StreamSource)):
        return value
    if is_grain(value):
        return GrainSource(value)
    if is_nest_of_arrays(value):
        raise TypeError(
            f"{caller} got arrays as {argument} ({_kind(value)}), expected batches. Choose a batch size: "
            f"staging_tf1.sources.ArraySource(arrays, batch_size=...)."
        )
    # Strings and bytes are iterables too, of characters and integers.
    is_text = isinstance(value, (str, bytes, bytearray, memoryview))
    has_batches = callable(value) or hasattr(value, "__iter__")
    if not has_batches and hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        cure = "SequenceSource(dataset)" if is_keras_sequence(value) else "MapSource(dataset, batch_size=...)"
        raise TypeError(
            f"{caller} got a dataset of {len(value)} elements as {argument} ({kind_of(value)}), expected batches. Wrap "
            f"it: staging_tf1.sources.{cure}."
        )
    if is_text or not has_batches:
        refuse(
            caller, argument, value, "batches: a source, a generator function, a generator, or an iterable of batches"
        )
    return GeneratorSource(value)


def _check_numbers(caller: str, source: Source) -> None:
    owner = f"{caller}: {type(source).__name__}"
    whole(owner, "batch_size", source.batch_size, 1, INT64_MAX, "records")
    for name in ("num_records", "num_batches"):
        count = getattr(source, name)
        if count is not None:
            whole(owner, name, count, 0, INT64_MAX, "or None")


def check_spec(caller: str, source: Source | StreamSource, spec: Any) -> Any:
    """Check that the spec of a user's source is a nest of `ArraySpec`, `RaggedSpec` and `SparseSpec`, and return it."""
    for path, leaf in flatten_with_paths(spec):
        if not isinstance(leaf, ArraySpec) and not is_composite_spec(leaf):
            raise TypeError(
                f"{caller}: {type(source).__name__}.spec has {shown(leaf)} as {component_name(path)}, expected a nest "
                f"of staging_tf1.spec.ArraySpec, such as ArraySpec((None, 784), np.float32, 'image')."
            )
    return spec


def is_nest_of_arrays(value: Any) -> bool:
    """Whether a value is arrays with a row for each record, and no list of batches."""
    if isinstance(value, Mapping) or is_namedtuple(value) or _is_array(value):
        return True
    # A tuple of arrays is (images, labels). A list of arrays or structures is a list of batches.
    return (
        isinstance(value, tuple)
        and bool(value)
        and all(map(_is_array, flatten(value)))
        and not all(is_structure(element) for element in value)
    )


def _is_array(value: Any) -> bool:
    # This includes pandas tables, which are iterables of column names.
    return hasattr(value, "__array__") and not isinstance(value, (type, np.generic))


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "one numpy array"
    return kind_of(value) if _is_array(value) else f"a {type(value).__name__} of {len(value)}"
