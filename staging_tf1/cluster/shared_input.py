"""What the workers of a cluster must have in common of an input that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1.errors import ClusterError

__all__ = ["CONTENT", "Input", "check_same_input"]

# Arguments and their values; and, by component, the hash and the sums of a sample of the records.
Input = Mapping[str, Any]
CONTENT = "content"
# Machines compute floats with other instructions.
_TOLERANCE = 1e-3


def check_same_input(pipeline: str, own: Input, reference: Input, task: str, other: str) -> None:
    """Raise ClusterError unless `task` has the input `own` of a pipeline as `other`, which has `reference`."""
    for key, value in own.items():
        # Another kind of source has none of it; that is found in the fingerprint.
        theirs = reference.get(key, value)
        if key != CONTENT and value != theirs:
            raise ClusterError(
                f"pipeline '{pipeline}': {other} has {key}={theirs!r}, and {task} has {key}={value!r}. Give the "
                f"source the same {key}= in every worker, so that no record is read twice or by nobody."
            )
        differing = [part for part in value if not _agree(value[part], theirs.get(part))] if key == CONTENT else []
        if differing:
            raise ClusterError(
                f"pipeline '{pipeline}': {', '.join(differing)} of the source of {task} differs from that of {other}, "
                f"in a sample of the records. Give every worker the same records in the same order (shuffle=True with "
                f"a seed= shuffles them in the source), or share='own' if each has records of its own."
            )


def _agree(sample: Any, other: Any) -> bool:
    (digest, sums), (their_digest, their_sums) = sample, other or sample
    if digest != their_digest or len(sums) != len(their_sums):
        return False
    size = np.abs(np.nan_to_num(their_sums, posinf=0.0, neginf=0.0)).mean() if sums else 0.0
    return bool(np.allclose(sums, their_sums, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True))
