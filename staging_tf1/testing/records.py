"""The records of an epoch, each as a digest of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from staging_tf1.sources.base import Source
from staging_tf1.spec import flatten
from staging_tf1.spec.composite import as_composite, is_composite
from staging_tf1.spec.ragged import RaggedValue


def epoch_records(source: Source) -> Iterator[bytes]:
    """Yield a digest of each record of one epoch."""
    batches = source.batches_per_epoch or source.num_batches
    if batches is None:
        raise ValueError(f"{source!r} has no end of epoch. Test its shards with epochs=1.")
    for number in range(batches):
        leaves = flatten(source.batch(number))
        for row in zip(*map(_rows, leaves)):
            digest = hashlib.blake2b(digest_size=16)
            for value in row:
                digest.update(value if isinstance(value, bytes) else _content(np.asarray(value)))
                digest.update(b"|")
            yield digest.digest()


def _content(array: np.ndarray[Any, Any]) -> bytes:
    # The bytes of an array of strings are the addresses of its objects.
    return repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()


def _rows(leaf: Any) -> Any:
    """The rows of a component: those of an array, or the text of those of a composite."""
    if not is_composite(leaf):
        return leaf
    composite = as_composite(leaf)
    if isinstance(composite, RaggedValue):
        return [repr(row).encode() for row in composite.to_list()]
    rows: list[list[Any]] = [[] for _ in range(len(composite))]
    for (row, *index), value in zip(np.asarray(composite.indices).tolist(), np.asarray(composite.values).tolist()):
        rows[row].append((index, value))
    return [repr(row).encode() for row in rows]
