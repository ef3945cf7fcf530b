"""`DealtPosition`: which batches the steps have consumed, where the workers share the batches dynamically.

The workers consume the batches of one source out of order, so a number is no position. See `cluster/acked.py` for what
the variable holds.
"""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.position import Position, Share

# The entry of the fingerprint that tells such a position from others, and its value. Others have no such entry.
SHARE, DYNAMIC, STATIC = "share", "dynamic", "static"


class DealtPosition(Position):
    """Which batches of a source have been consumed.

    The variables have the names that `Position` gives them, so a checkpoint of either can be restored for the other.

    Args:
      fingerprint: that of the whole source.
      share: one tower; the others of a cluster have the same position.
      window: how many batches may be under way at once.

    Attributes:
      skip: an op that marks one batch as consumed, which no step takes because it is bad.
      skipped: the placeholder for its number.
    """

    def __init__(self, fingerprint: dict[str, int | str], share: Share, window: int) -> None:
        self.window = window
        super().__init__({**fingerprint, SHARE: DYNAMIC}, share)
        with self._on_its_device():
            self.skipped = tf.placeholder(tf.int64, [], name="skipped")
        self.skip = self.advance(0, self.skipped, None)

    @property
    def name(self) -> str:
        """The name under which servers know the variable."""
        return str(self._batches.handle.op.get_attr("shared_name").decode())

    @property
    def length(self) -> int:
        """How many numbers the variable holds."""
        return self.window

    def _initial(self) -> Any:
        # A constant would add 256 KiB to the graph.
        return lambda: tf.range(self.window, dtype=tf.int64)

    def consumed(self, saved: Any) -> tuple[int, ...]:
        """Returns how many batches all workers together have consumed."""
        return (int(sum(slot // self.window for slot in saved.tolist())),)

    def advance(self, tower: int, count: Any, label: Any) -> Any:
        """Returns the op that marks a batch as consumed.

        Args:
          tower: 0.
          count: the number of the batch.
          label: ignored.
        """
        with self._behind_fence():
            slot, following = tf.reshape(count % self.window, [1, 1]), tf.reshape(count + self.window, [1])
            # An op that overwrites the slot could set it back, and assign_add would count a batch twice.
            return tf.raw_ops.ResourceScatterNdMax(
                ref=self._batches.handle, indices=slot, updates=following, use_locking=True, name="acknowledge"
            )
