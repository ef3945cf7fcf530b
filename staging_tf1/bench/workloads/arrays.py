"""The base class of the workloads on arrays in memory: shuffled record numbers, a gather, a conversion."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.bench.workloads.transforms import Change, scaled, unchanged
from staging_tf1.bench.workloads.workload import Array, Batch, Workload
from staging_tf1.sources import ArraySource, Source, aligned_empty

__all__ = ["ArrayWorkload"]


class ArrayWorkload(Workload):
    """A workload whose records are rows of arrays: `data` is a dict of arrays, all of the same length."""

    # Transforms the rows before their conversion, while they are bytes. A function of a module that imports no
    # TensorFlow, and no method: worker processes import what they call.
    reshape: Change = staticmethod(unchanged)
    # Whether `reshape` draws random numbers. If not, the source need not make a generator for each batch.
    draws = False

    @property
    def convert(self) -> Change:
        """Converts gathered rows to the model's input."""
        return functools.partial(scaled, before=self.reshape)

    def batches(self, data: Batch, seed: int) -> Iterator[Batch]:
        rng, convert = np.random.default_rng(seed), self.convert
        while True:
            order = rng.permutation(len(data["label"]))
            for start in range(0, len(order), self.batch_size):
                records = order[start : start + self.batch_size]
                yield convert({name: array[records] for name, array in data.items()}, rng, np.empty)

    def source(self, data: Batch, seed: int, *, shuffle: bool = True) -> Source:
        return self._maker(data, seed, shuffle, self.convert)()

    def maker(self, data: Batch, seed: int) -> Callable[[], Source]:
        return self._maker(data, seed, True, self.convert)

    def compact_source(self, data: Batch, seed: int) -> Source:
        return self._maker(data, seed, True, self.reshape)()

    def _maker(self, data: Batch, seed: int, shuffle: bool, change: Change) -> Callable[[], Source]:
        given = {"empty": aligned_empty} if self.draws else {"empty": aligned_empty, "rng": None}
        transform = functools.partial(change, **given)
        return functools.partial(
            ArraySource, data, batch_size=self.batch_size, shuffle=shuffle, seed=seed, transform=transform
        )

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"image": tf.cast(batch["image"], tf.float32) * np.float32(1 / 255)}

    def gathered(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return a dataset of gathered rows. It shuffles record numbers, which needs no buffer of rows.

        The arrays are fed when the iterator is initialized. As constants they would be part of the graph, which is
        limited to 2 GB.
        """
        holders = {name: tf.placeholder(array.dtype, array.shape) for name, array in data.items()}
        numbers = Dataset.range(len(data["label"])).shuffle(len(data["label"]), seed=seed).repeat()

        def gather(records: Any) -> dict[str, Any]:
            return {name: tf.gather(rows, records) for name, rows in holders.items()}

        dataset = numbers.batch(self.batch_size, drop_remainder=True).map(
            lambda records: self.in_graph(gather(records)), num_parallel_calls=tf.data.AUTOTUNE
        )
        return dataset.prefetch(tf.data.AUTOTUNE), {holder: data[name] for name, holder in holders.items()}

    def in_graph(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert a batch as `convert` does, in TensorFlow ops."""
        return self.expand(batch)


def random_images(records: int, shape: tuple[int, ...], classes: int) -> Batch:
    """Return `records` images of random bytes. The label is the record's number modulo `classes`."""
    image: Array = np.random.default_rng(0).integers(0, 256, size=(records, *shape), dtype=np.uint8)
    return {"image": image, "label": (np.arange(records) % classes).astype(np.int32)}
