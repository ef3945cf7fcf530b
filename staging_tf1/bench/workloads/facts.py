"""What is known of a workload without loading it, and TensorFlow with it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FACTS", "Facts"]


@dataclass(frozen=True)
class Facts:
    """The sizes of one workload."""

    help_text: str
    # Records in a batch.
    batch_size: int
    # How many records there are, and how many in the quick form: multiples of the batch size, so that all batches
    # are alike.
    records: int
    quick_records: int
    # The system whose time is the bound; None where the bound is computed.
    reference: str | None = None


FACTS = {
    "W1": Facts("128x784 float32 from bytes; softmax regression: overhead of a step", 128, 128 * 400, 128 * 8),
    "W2": Facts("64x96x96x3 float32 from bytes; two convolutions: copies, busy cores", 64, 64 * 64, 64 * 2),
    "W3": Facts("as W1, a batch waits 20 ms; two hidden layers of 896: latency", 128, 128 * 400, 128 * 8),
    "W4": Facts("16x96x96x3 float32 from JPEGs; two convolutions: decoding in Python", 16, 16 * 32, 16 * 2),
    "W5": Facts("256 records of 1 KB from TFRecord, shuffled; no model: reading", 256, 256 * 3906, 256 * 4, "tf_data"),
}
