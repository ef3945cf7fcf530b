"""Who owns a buffer: what a source keeps is copied before it is fed, what it gives away is not.

TensorFlow uses a fed numpy array in place when it starts on a 64-byte boundary, and copies it otherwise; so a
producer that writes to its buffer again changes a batch that is already staged, sometimes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1.arrays import checked_array, is_plain
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_copy
from staging_tf1.spec import map_structure

_IMMUTABLE = (int, float, complex, str, bytes, np.generic)


def owned(batch: Any) -> Any:
    """The batch in arrays that nobody else can write to, placed so that TensorFlow need not copy them again.

    A batch that holds what makes no array comes back as it is, for the check of the batch to say what is wrong.
    """
    try:
        return map_structure(_owned, batch)
    except SpecError:
        return batch


def _owned(leaf: Any) -> Any:
    if isinstance(leaf, _IMMUTABLE):
        return leaf
    # Not only arrays: a memoryview or a torch tensor is as good a buffer.
    array = leaf if is_plain(leaf) else checked_array(leaf, None, "")
    return array.copy() if array.dtype == object else aligned_copy(array)
