"""The settings of TensorFlow's thread pools for one measurement: `@inter_op=1`, `@no_spinning`."""

from __future__ import annotations

import re
from typing import Any

from staging_tf1.bench.errors import BenchError

__all__ = ["POOLS", "parse_pool", "pool_words"]

# The fields of a request for the thread pools, and their names in a `tf.ConfigProto`.
POOLS = {
    "inter_op": "inter_op_parallelism_threads",
    "intra_op": "intra_op_parallelism_threads",
    "no_spinning": "experimental.disable_thread_spinning",
}


def parse_pool(text: str) -> tuple[str, Any]:
    """Parse `inter_op=1`, `intra_op=1` or `no_spinning` into a name and a value, or raise BenchError.

    >>> parse_pool("inter_op=2"), parse_pool("no_spinning")
    (('inter_op', 2), ('no_spinning', True))
    """
    if text == "no_spinning":
        return text, True
    match = re.fullmatch(r"(inter_op|intra_op)=([1-9]\d{0,2})", text)
    if match is None:
        raise BenchError(
            f"Unknown pool setting '@{text}', expected @inter_op=N or @intra_op=N (N from 1 to 999), or @no_spinning."
        )
    return match[1], int(match[2])


def pool_words(pools: tuple[tuple[str, Any], ...]) -> str:
    """Return the text that `parse_pool` parses into `pools`."""
    return "".join(f"@{name}" if name == "no_spinning" else f"@{name}={value}" for name, value in pools)
