"""The facts about the workloads that are available without importing TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FACTS", "Facts"]


@dataclass(frozen=True)
class Facts:
    """The sizes of one workload."""

    help_text: str
    # Records per batch.
    batch_size: int
    # The number of records, and the number with `--quick`. Both are multiples of the batch size: all batches are full.
    records: int
    quick_records: int
    # The system whose time is the bound; None if the bound is computed.
    reference: str | None = None


FACTS = {
    "W1": Facts("128x784 float32 from bytes; softmax regression: overhead per step", 128, 128 * 400, 128 * 8),
    "W2": Facts("64x96x96x3 float32 from bytes; two convolutions: copies, busy cores", 64, 64 * 64, 64 * 2),
    "W3": Facts("as W1, each batch waits 20 ms; two hidden layers of 896: latency", 128, 128 * 400, 128 * 8),
    "W4": Facts("16x96x96x3 float32 from JPEGs; two convolutions: decoding in Python", 16, 16 * 32, 16 * 2),
    "W5": Facts("256 records of 1 KB from TFRecord, shuffled; no model: reading", 256, 256 * 3906, 256 * 4, "tf_data"),
}
