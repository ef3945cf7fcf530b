"""`SequenceSource`: the batches of a dataset whose elements are batches, such as a Keras `Sequence`."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import SpecError
from staging_tf1.sources.batches import Options
from staging_tf1.sources.content import Content, content_of_items
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.stacking import aligned_batch
from staging_tf1.sources.transform import Transform
from staging_tf1.spec import bytes_per_batch, flatten, infer_spec, with_batch_dim


class SequenceSource(RecordSource):
    """The batches of an object with `__len__` and `__getitem__` whose elements are batches.

    That is a Keras `Sequence` or `PyDataset`, or a list of batches. Here the records are whole batches: `num_records`,
    `take`, `skip` and `split` count them, `shuffle` shuffles them, as `fit` does, and shards divide them. Their rows
    are never mixed. A batch must depend on its number only, so `on_epoch_end` is not called.

    >>> source = SequenceSource([[1, 2], [3, 4], [5]], epochs=1)
    >>> source.num_batches, source.batch(2)
    (3, array([5]))

    Args:
      sequence: the dataset.
      thread_safe: whether several threads may read it at the same time. False reads it under a lock.
      shuffle, seed, epochs, shard, transform: as in `RecordSource`.

    Raises:
      SpecError: there are no batches; (by `batch`) an element is no batch.
      TypeError, ValueError: an argument is invalid.
    """

    _rows_are_records = False

    def __init__(
        self,
        sequence: Any,
        *,
        thread_safe: bool = True,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = None,
        shard: tuple[int, int] | None = None,
        transform: Transform | None = None,
    ) -> None:
        is_text = isinstance(sequence, (str, bytes, bytearray, memoryview, type, dict, np.ndarray))
        if is_text or not hasattr(sequence, "__getitem__") or not hasattr(sequence, "__len__"):
            expected = "an object with __len__ and __getitem__, whose elements are batches"
            arguments.refuse(self._owner, "sequence", sequence, expected)
        safe = arguments.flag(self._owner, "thread_safe", thread_safe)
        self._sequence = sequence
        self._lock: Any = contextlib.nullcontext() if safe else threading.Lock()
        if not len(sequence):
            raise SpecError(f"{self._owner} got a sequence without batches, expected at least one.")
        self._set_up(len(sequence), Options(1, shuffle, seed, epochs, shard, transform=transform))

    def record_spec(self, batch_dim: int | None) -> Any:
        return infer_spec(self._first(), self._owner)

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        number = int(numbers_of(records)[0])
        with self._lock:
            batch = self._sequence[number]
        if batch is None:
            raise SpecError(f"{self._owner}: batch {number} is None, expected a nest of arrays.")
        return aligned_batch(batch, f"{self._owner}: batch {number}")

    def content_sample(self) -> Content:
        return content_of_items(self._sequence)

    @property
    def bytes_per_batch(self) -> int | None:
        """Bytes in a batch with as many rows as the first. None for strings."""
        return bytes_per_batch(self.spec, len(flatten(self._first())[0]))

    def _first(self) -> Any:
        return self.gather(np.array([self._batching.left_out.next_outside(0)]))

    def _find_spec(self) -> Any:
        return with_batch_dim(super()._find_spec(), None)

    def _arranged(self, caller: str, **changes: Any) -> Any:
        raise ValueError(f"{caller} got {self!r}, whose elements are batches, expected a source with numbered records.")

    def _with_options(self, changes: dict[str, Any]) -> Any:
        for name in ("batch_size", "drop_remainder", "across_epochs"):
            if name in changes:
                raise ValueError(f"{self._owner}.with_options() got {name}=, but the dataset makes the batches.")
        return super()._with_options(changes)

    def _no_part(self) -> str:
        return "whose elements are batches. Use sources with numbered records."
