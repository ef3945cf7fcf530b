"""W6: texts in memory, cut into tokens by pure Python."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.bench.errors import NotApplicable
from staging_tf1.bench.workloads.arrays import ArrayWorkload
from staging_tf1.bench.workloads.facts import FACTS
from staging_tf1.bench.workloads.models import text_loss
from staging_tf1.bench.workloads.transforms import TOKENS, Change, tokenized, vocabulary
from staging_tf1.bench.workloads.workload import Batch
from staging_tf1.sources import Source

__all__ = ["W6"]


class W6(ArrayWorkload):
    """Pure Python, which holds the GIL.

    256 short texts, each cut into the longest pieces of a vocabulary and padded; an embedding, a hidden layer, SGD.
    """

    name = "W6"
    reshape = staticmethod(tokenized)
    batch_size = FACTS["W6"].batch_size
    spec = MappingProxyType({"tokens": ((TOKENS,), np.int32), "label": ((), np.int32)})

    @property
    def convert(self) -> Change:
        return self.reshape

    def open(self, records: int, folder: str) -> Batch:
        rng = np.random.default_rng(0)
        texts = np.array(_texts(rng, records), dtype=object)
        return {"text": texts, "label": (np.arange(records) % 10).astype(np.int32)}

    def compact_source(self, data: Batch, seed: int) -> Source:
        raise NotApplicable("W6 has no compact form of its batches")

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W6 cuts texts in Python; tf.data cannot make its batches in TensorFlow ops")

    def model(self, batch: dict[str, Any]) -> Any:
        loss = text_loss(batch, pieces=len(vocabulary()) + 2, width=64, hidden=(384,), classes=10)
        return tf.train.GradientDescentOptimizer(0.01).minimize(loss)


def _texts(rng: np.random.Generator, count: int) -> list[bytes]:
    """Return texts of 6 to 11 words of 2 to 8 letters."""
    words = rng.integers(6, 12, size=count)
    lengths = rng.integers(2, 9, size=words.sum())
    letters = rng.integers(ord("a"), ord("z") + 1, size=lengths.sum(), dtype=np.uint8).tobytes()
    ends = np.cumsum(lengths)
    all_words = [letters[begin:end] for begin, end in zip((ends - lengths).tolist(), ends.tolist())]
    last = np.cumsum(words)
    return [b" ".join(all_words[begin:end]) for begin, end in zip((last - words).tolist(), last.tolist())]
