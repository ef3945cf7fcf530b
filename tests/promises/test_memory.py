"""A long run uses no more memory than a short one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from slow import with_slow

import staging_tf1 as staging
from staging_tf1.sources import ArraySource, GeneratorSource


def resident_pages() -> int:
    """Return the resident pages of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize("kind", ["staged", "lockstep", "stream", "classic"])
@pytest.mark.slow_cases(r"(?!(staged|classic)$).*")
def test_memory_is_flat_over_thousands_of_steps(graph: Any, kind: str) -> None:
    # Fewer steps need larger batches, of which fewer make the difference.
    early, late, width = (1000, 10_000, 256) if with_slow() else (300, 1100, 1024)
    source: Any = ArraySource(np.zeros((1000, width), np.float32), batch_size=32, shuffle=True, seed=1)
    if kind == "classic":
        x = staging.staged(staging.CustomRunner(source, batch_size=32, num_threads=2).get_inputs())
    elif kind == "stream":
        x = staging.staged(GeneratorSource(source.batches, spec=tf.TensorSpec([None, width], tf.float32)))
    else:
        x = staging.staged(source, lockstep=kind == "lockstep", capacity=4)
    total = tf.reduce_sum(x)
    with staging.StagingSession() as sess:
        step = sess.make_callable(total)
        after = {}
        for number in range(1, late + 1):
            step()
            if number in (early, late):
                after[number] = resident_pages()
    assert after[late] <= 1.02 * after[early]
