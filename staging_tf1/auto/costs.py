"""`Costs`: how long ops take, and what it costs to carry their results to the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.auto import kinds

_STRING_BYTES = 64


@dataclass(frozen=True)
class Costs:
    """Measured costs; those that were not measured are estimated by the type of the op."""

    # Nanoseconds of one step, by the name of an op: all rounds of a loop.
    times: Mapping[str, int] = field(default_factory=dict)
    # Bytes, by the name of a tensor.
    sizes: Mapping[str, int] = field(default_factory=dict)

    def time_of(self, op: Any, rounds: int = 1) -> int:
        """Return how many nanoseconds an op takes in one step; `rounds` is how often an estimate counts."""
        measured = self.times.get(op.name)
        if measured is not None:
            return measured
        return rounds * kinds.time_of(op.type, sum(map(self.size_of, op.outputs)))

    def size_of(self, tensor: Any) -> int:
        """Return the bytes of a tensor. If estimated, an unknown dimension counts as 32 and a string as 64 bytes."""
        measured = self.sizes.get(tensor.name)
        if measured is not None:
            return measured
        dtype = tensor.dtype.base_dtype
        item = _STRING_BYTES if dtype == tf.string else (dtype.size or 8)
        return kinds.bytes_of(None if tensor.shape.rank is None else tensor.shape.as_list(), item)

    def carrying_time(self, tensor: Any) -> int:
        """Return how many nanoseconds it costs to carry a tensor across the boundary."""
        return kinds.carrying_time(self.size_of(tensor))
