"""Who owns a buffer: what a source keeps is copied before it is fed, what it gives away is not.

TensorFlow uses a fed numpy array in place when it starts on a 64-byte boundary, and copies it otherwise; so a
producer that writes to its buffer again changes a batch that is already staged, sometimes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1.sources.aligned import aligned_empty


def owned(array: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A copy of `array` that nobody else can write to, placed so that TensorFlow need not copy it again."""
    source: np.ndarray[Any, Any] = np.asarray(array)
    if source.dtype.kind in "OSU":
        # Strings are converted one by one when they are fed: that is the copy.
        return source
    copy: np.ndarray[Any, Any] = aligned_empty(source.shape, dtype)
    np.copyto(copy, source, casting="no" if source.dtype == dtype else "safe")
    return copy
