"""Blocks: several batches that are read at once, in hardly more time than one."""

from __future__ import annotations

from typing import Any

from staging_tf1.sources.records import RecordSource

# No kernel slices a block of more dimensions.
_MOST_DIMS = 8


def has_blocks(source: Any) -> bool:
    """Whether several batches of a source can be read at once: they are rows of arrays, and nothing else."""
    if not isinstance(source, RecordSource):
        return False
    batches = source._batching
    plain = batches.options.transform is None and batches.layout is None and not batches.left_out
    return source._copies_rows and plain


def can_be_sliced(leaf: Any) -> bool:
    """Whether every release of TensorFlow can take a batch of that spec out of a block."""
    dtype = leaf.dtype
    is_common = dtype.names is None and (dtype.type.__module__ == "numpy" or dtype.name == "bfloat16")
    return is_common and len(leaf.shape or ()) < _MOST_DIMS


def full_batches(source: Any, index: int, most: int) -> int:
    """Return how many batches from `index` on, up to `most`, are a block: full and of one epoch; or 1, of any size."""
    count: int = source._batching.schedule.full_from(index, most)
    return count


def read_block(source: Any, index: int, batches: int) -> Any:
    """Return the rows of a block of batches from `index` on, one batch after the other. The source must have blocks."""
    return source._gathered(source._batching.numbers_in(index, batches))
