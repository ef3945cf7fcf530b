"""Blocks: several batches that are read at once, in hardly more time than one."""

from __future__ import annotations

from typing import Any

from staging_tf1.sources.records import RecordSource

__all__ = ["has_blocks", "read_block"]


def has_blocks(source: Any) -> bool:
    """Whether several batches of a source can be read at once: they are rows of arrays, and nothing else."""
    if not isinstance(source, RecordSource):
        return False
    batches = source._batching
    return source._copies_rows and batches.options.transform is None and batches.layout is None


def read_block(source: RecordSource, index: int, most: int) -> tuple[int, Any]:
    """Read up to `most` batches from `index` on at once. The source must have blocks.

    Returns how many there are, and their rows, one batch after the other. All are full, unless there is only one.
    """
    batches = source._batching
    count = batches.schedule.full_from(index, most)
    return count, source._gathered(batches.numbers_in(index, count))
