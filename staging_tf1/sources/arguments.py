"""The checks of the arguments that all sources share, with what to write instead."""

from __future__ import annotations

import operator
import secrets
from typing import Any

__all__ = ["check_batch_size", "check_count", "check_seed", "check_shard", "draw_seed"]


def check_batch_size(owner: str, batch_size: Any) -> int:
    """A positive integer."""
    return check_count(owner, "batch_size", batch_size, "records in a batch")


def check_count(owner: str, name: str, value: Any, meaning: str) -> int:
    """A positive integer called `name`, which counts what `meaning` says.

    Raises:
      TypeError: it is no integer.
      ValueError: it is below 1.
    """
    number = _integer(owner, name, value, meaning)
    if number < 1:
        raise ValueError(f"{owner}: {name}={value} must be at least 1: it is the number of {meaning}.")
    return number


def _integer(owner: str, name: str, value: Any, meaning: str) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{owner}: {name}={value!r} must be an integer: {meaning}.")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{owner}: {name}={value!r} must be an integer: {meaning}.") from None


def check_seed(owner: str, seed: Any) -> int:
    """A non-negative integer below 2**63."""
    number = _integer(owner, "seed", seed, "what the shuffle and the transform's rng are computed from")
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{owner}: seed={seed} must be from 0 to 2**63 - 1.")
    return number


def draw_seed() -> int:
    """A seed that nobody chose."""
    return secrets.randbits(31)


def check_shard(owner: str, shard: Any, num_records: int) -> tuple[int, int]:
    """A pair (index, count) with 0 <= index < count <= num_records; None is (0, 1).

    Raises:
      TypeError: it is no pair of integers.
      ValueError: the index is out of range, or the shard would have no record.
    """
    if shard is None:
        return 0, 1
    if not isinstance(shard, (tuple, list)) or len(shard) != 2:
        raise TypeError(f"{owner}: shard={shard!r} must be a pair (index, count), as in shard=(0, 4).")
    index = _integer(owner, "shard index", shard[0], "which of the shards this is")
    count = check_count(owner, "shard count", shard[1], "shards")
    if not 0 <= index < count:
        raise ValueError(
            f"{owner}: shard=({index}, {count}) has its index out of range: {count} "
            f"shard{'s' if count > 1 else ''} "
            f"{'are numbered 0 to ' + str(count - 1) if count > 1 else 'is numbered 0'}."
        )
    if index >= num_records:
        raise ValueError(
            f"{owner}: shard=({index}, {count}) would be empty: there are {num_records} records for {count} "
            f"shards. Use at most {num_records} shards."
        )
    return index, count
