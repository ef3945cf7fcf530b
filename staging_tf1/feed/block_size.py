"""`BlockSize`: how many batches one run puts."""

from __future__ import annotations

from staging_tf1._tf import is_profiled

# What is read ahead is in no step yet, and the figures count a block when it is put.
_MOST_SECS = 0.025
_MOST_BYTES = 8 << 20
_MOST_BATCHES = 64
# How many batches come first. TensorFlow takes a moment to prepare the loop, and the first steps need its threads.
_FIRST_BATCHES = 32
# A `map_fn` that takes longer stays with the reading: it counts as time in the source, and not as waiting for room.
_MOST_MAP_SECS = 0.001
# A clock may stand still for that long.
_LEAST_SECS = 1e-6


class BlockSize:
    """How many batches are read at once and put in one run. All threads of a producer share it.

    Each run of a put holds Python's lock for a while, and the training loop waits for it. With steps of less than 5 ms
    that shows. So blocks grow while steps are fast, and while the step has enough staged batches during the reading.

    Args:
      capacity: how many batches can be staged.
      bytes_per_batch: bytes in a batch; None if unknown.
      maps: whether a batch goes through `map_fn` while it is read, and one of a block while it is put.

    Attributes:
      batches: how many to read next.
    """

    def __init__(self, capacity: int, bytes_per_batch: int | None, maps: bool = False) -> None:
        self.batches = 1
        self._put = 0
        self._capacity, self._maps = capacity, maps
        self._most = 1 if bytes_per_batch is None else min(_MOST_BATCHES, _MOST_BYTES // max(1, bytes_per_batch))

    def note(self, batches: int, source_secs: float, put_secs: float) -> None:
        """Set the next size from how long a block took to read, and to put."""
        self._put += batches
        if self._put < _FIRST_BATCHES or is_profiled():
            # The profile shows each batch.
            self.batches = 1
            return
        read_secs = max(source_secs / batches, _LEAST_SECS)
        if self._maps and batches == 1 and read_secs > _MOST_MAP_SECS:
            return
        step_secs = read_secs + put_secs / batches
        wanted = min(2 * batches, self._most, _MOST_SECS / step_secs, self._capacity * step_secs / read_secs)
        # A pause of the steps, as for a checkpoint, is over in the next block.
        self.batches = max(1, self.batches // 2, int(wanted))
