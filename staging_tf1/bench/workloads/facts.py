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
    # The module of the class, in this package.
    module: str = "images"
    # The system whose time is the bound; None if the bound is computed.
    reference: str | None = None
    # The cores that one op of the step uses; 0 leaves the choice to TensorFlow.
    intra_op: int = 0
    # Whether systems with worker processes suit it: a batch takes milliseconds of Python, or is large.
    for_processes: bool = False


FACTS = {
    "W1": Facts("128x784 float32 from bytes; softmax regression: overhead per step", 128, 128 * 400, 128 * 8),
    "W2": Facts("64x96x96x3 float32 from bytes; two convolutions: copies, busy cores", 64, 64 * 64, 64 * 2),
    "W3": Facts("as W1, each batch waits 20 ms; two hidden layers of 896: latency", 128, 128 * 400, 128 * 8),
    "W4": Facts(
        "16x96x96x3 float32 from JPEGs; two convolutions: decoding in Python",
        *(16, 16 * 32, 16 * 2),
        for_processes=True,
    ),
    "W5": Facts(
        "256 records of 1 KB from TFRecord, shuffled; no model: reading",
        *(256, 256 * 3906, 256 * 4),
        module="w5",
        reference="tf_data",
    ),
    "W6": Facts(
        "256 texts to 32 tokens; an embedding and a layer on one core: pure Python",
        *(256, 256 * 32, 256 * 2),
        module="texts",
        intra_op=1,
        for_processes=True,
    ),
    "W7": Facts(
        "64x320x320x3 bytes, 20 MB; no model: large batches",
        *(64, 64 * 8, 64 * 2),
        reference="memcpy",
        for_processes=True,
    ),
}
