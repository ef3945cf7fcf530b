"""Whether two reads of a batch are the same: components, dtypes, shapes and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1.spec import flatten_with_paths
from staging_tf1.spec.arrays import describe
from staging_tf1.spec.composite import arrays_of, as_composite, is_composite


def copied(batch: Any) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Copy the arrays of a batch, each with the path of its component."""
    return [(path, np.array(array)) for path, leaf in flatten_with_paths(batch) for array in arrays_in(leaf)]


def arrays_in(leaf: Any) -> list[Any]:
    """Return the arrays that a component consists of: one, or those of a composite."""
    return arrays_of(as_composite(leaf) if is_composite(leaf) else leaf)


def assert_same(expected: list[Any], got: list[Any], what: str) -> None:
    """Compare two batches that `copied` returned.

    Raises:
      AssertionError: they differ; the message names the component and the first value.
    """
    paths, got_paths = [path for path, _ in expected], [path for path, _ in got]
    if paths != got_paths:
        raise AssertionError(f"{what} has the components {got_paths}, expected {paths} as in the first read.")
    for (path, first), (_, second) in zip(expected, got):
        component = f" component {path!r}" if path else ""
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise AssertionError(
                f"{what}:{component} is {describe(second.dtype, second.shape)}, expected "
                f"{describe(first.dtype, first.shape)} as in the first read."
            )
        differs = np.asarray(first != second)
        # Two NaNs count as equal. Only NaN differs from itself, in every dtype.
        differs &= ~np.asarray((first != first) & (second != second))
        if differs.any():
            index = tuple(int(axis[0]) for axis in np.nonzero(differs))
            raise AssertionError(
                f"{what}:{component} differs in {int(differs.sum())} of {differs.size} values, first at "
                f"{list(index)}: got {second[index]!r}, expected {first[index]!r} as in the first read."
            )
