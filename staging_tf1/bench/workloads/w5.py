"""W5: only reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.bench.workloads import FACTS
from staging_tf1.bench.workloads.workload import Batch, Workload
from staging_tf1.sources import Source, TFRecordSource, write_tfrecords

__all__ = ["W5"]

_BYTES = 1024
# The size of the shuffle buffer, in records; a usual value in tf.data tutorials.
_BUFFER = 10_000


class W5(Workload):
    """256 records of 1 KB from a TFRecord file of 10^6 records, fully shuffled. There is no model.

    The file is made once, in the cache folder. Record `i` starts with `i` as eight bytes.
    """

    name = "W5"
    batch_size = FACTS["W5"].batch_size
    spec = MappingProxyType({"record": ((), np.object_)})

    def open(self, records: int, folder: str) -> str:
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"w5-{records}x{_BYTES}.tfrecord")
        if not os.path.exists(path):
            write_tfrecords(_records(records), path)
        return path

    def batches(self, data: str, seed: int) -> Iterator[Batch]:
        """Yield the batches front to back: without an index, a TFRecord file does not support random access."""
        while True:
            batch: list[bytes] = []
            for record in tf.io.tf_record_iterator(data):
                batch.append(record)
                if len(batch) == self.batch_size:
                    yield {"record": np.array(batch, dtype=object)}
                    batch = []

    def source(self, data: str, seed: int, *, shuffle: bool = True) -> Source:
        return TFRecordSource(data, batch_size=self.batch_size, shuffle=shuffle, seed=seed)

    def compact_source(self, data: str, seed: int) -> Source:
        return TFRecordSource(data, batch_size=self.batch_size, shuffle=True, seed=seed, as_uint8=True)

    def named(self, staged: Any) -> dict[str, Any]:
        return {"record": staged}

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch unchanged: a model would use the fixed-length bytes directly."""
        return batch

    def dataset(self, data: str, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return a dataset that reads front to back, which is tf.data's fastest way."""
        return self._read(data).prefetch(2), {}

    def shuffled_dataset(self, data: str, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self._read(data, _BUFFER, seed).prefetch(2), {}

    def _read(self, path: str, buffer: int = 0, seed: int = 0) -> Any:
        records = tf.data.TFRecordDataset(path).repeat()
        if buffer:
            records = records.shuffle(buffer, seed=seed)
        return records.batch(self.batch_size, drop_remainder=True).map(lambda record: {"record": record})

    def model(self, batch: dict[str, Any]) -> Any:
        # An op has no value. Fetching the records would copy 256 KB per step.
        return tf.group(batch["record"])


def _records(count: int) -> Iterator[bytes]:
    noise = np.random.default_rng(0).bytes(_BYTES - 8)
    for number in range(count):
        yield number.to_bytes(8, "little") + noise
