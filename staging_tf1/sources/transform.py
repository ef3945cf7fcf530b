"""Support for a user's `transform(batch)` or `transform(batch, rng)`.

This module creates the random numbers, moves the output into new memory, and infers its spec.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from staging_tf1.arguments import refuse
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_copy, is_aligned, memory_of
from staging_tf1.spec import component_spec, flatten, flatten_with_paths, map_structure, pack
from staging_tf1.spec.arrays import checked_array, is_plain
from staging_tf1.spec.composite import as_composite, is_composite

Transform = Callable[[Any], Any] | Callable[[Any, np.random.Generator], Any]


def wants_rng(owner: str, transform: Transform | None) -> bool:
    """Whether `transform` is to be called as `transform(batch, rng)` rather than `transform(batch)`.

    Raises TypeError if it takes neither.
    """
    if transform is None:
        return False
    if not callable(transform):
        refuse(owner, "transform", transform, "a function transform(batch) or transform(batch, rng)")
    try:
        signature = inspect.signature(transform)
    except ValueError:  # a C function without a signature
        return True
    if _takes(signature, None, None):
        return True
    if _takes(signature, None):
        return False
    name = getattr(transform, "__name__", repr(transform))
    raise TypeError(
        f"{owner}: transform {name}{signature} must take (batch) or (batch, rng): the arrays of a batch, and a numpy "
        "random generator that depends only on the seed and the index of the batch."
    )


def _takes(signature: inspect.Signature, *arguments: None) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def batch_rng(seed: int, shard_index: int, index: int) -> np.random.Generator:
    """Make the random generator of batch `index`. It is counter-based, independent of earlier batches."""
    # numpy accepts any ISeedSequence. Its stubs list one class only.
    key: Any = _Key(seed, shard_index)
    return np.random.Generator(np.random.Philox(key, counter=index << 192))


class _Key(ISeedSequence):
    """Passes a key to Philox. `Philox(key=...)` first requests entropy from the system, and then drops it."""

    def __init__(self, low: int, high: int) -> None:
        self._words = np.array([low, high], np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray[Any, Any]:
        return self._words


def own_batch(batch: Any) -> Any:
    """Copy the arrays of a gathered batch that are not in memory from `aligned_empty`: the source may keep them."""
    return map_structure(lambda leaf: as_composite(leaf)._map(_fresh) if is_composite(leaf) else _fresh(leaf), batch)


def _fresh(value: Any) -> Any:
    return aligned_copy(value) if isinstance(value, np.ndarray) and memory_of(value) is None else value


def hand_over(owner: str, batch: Any) -> Any:
    """Move a batch into arrays that TensorFlow reads in place, and that nothing else uses.

    Arrays in memory from `aligned_empty`, such as the gathered batch, are used as they are. All others are copied.
    TensorFlow would copy most of them anyway, because numpy does not align to 64 bytes, and an array that happens to be
    aligned may be a buffer that the transform reuses. Raises SpecError if a leaf is not an array, or lies in the memory
    of an earlier batch.
    """
    memories: list[Any] = []
    leaves = []
    for number, value in enumerate(flatten(batch)):
        where = functools.partial(_where, owner, batch, number)
        own = functools.partial(_own, memories=memories, where=where)
        leaves.append(as_composite(value)._map(own) if is_composite(value) else own(value))
    for memory in memories:
        memory.given_away = True
    return pack(batch, leaves)


def _own(value: Any, memories: list[Any], where: Callable[[], str]) -> np.ndarray[Any, Any]:
    """Return an array that can be given away, and add the memory that it uses to `memories`."""
    array = value if is_plain(value) else checked_array(value, None, where())
    memory = memory_of(array)
    if memory is None or not (is_aligned(array) and array.dtype.isnative):
        return aligned_copy(array)
    if memory.given_away:
        raise SpecError(
            f"{where()} returned the memory of an earlier batch, which TensorFlow may still be reading. Create a new "
            "aligned_empty array for each batch."
        )
    memories.append(memory)
    return array


def _where(owner: str, batch: Any, number: int) -> str:
    path = flatten_with_paths(batch)[number][0]
    return f"{owner}: transform's component {path!r}" if path else f"{owner}: transform"


def output_spec(owner: str, before: Any, after: Any, batch_dim: int | None) -> Any:
    """Infer the spec of transformed batches from one batch, before and after the transform."""
    rows = {len(leaf) for _, leaf in flatten_with_paths(before)}
    leaves = []
    for number, (path, leaf) in enumerate(flatten_with_paths(after)):
        spec = component_spec(leaf, path or None, _where(owner, after, number))
        if spec.shape and len(leaf) in rows:
            spec = dataclasses.replace(spec, shape=(batch_dim, *spec.shape[1:]))
        leaves.append(spec)
    return pack(after, leaves)
