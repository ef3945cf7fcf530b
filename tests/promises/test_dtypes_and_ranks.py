"""Every dtype that TensorFlow has, x records of rank 0 to 9, x every way to feed them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from slow import some_of
from tensorflow.python.framework import dtypes

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.readers import BlockSize
from staging_tf1.sources import ArraySource

RECORDS, BATCH = 12, 2
ALL = {dtype.name for dtype in vars(dtypes).values() if isinstance(dtype, tf.DType)}
# No array holds resources and variants.
DTYPES = sorted(name for name in ALL - {"resource", "variant"} if not name.endswith("_ref"))


def records(name: str, rank: int) -> Any:
    """Return records whose values differ, as far as the dtype has so many."""
    shape = (RECORDS, *[1] * max(0, rank - 1), *[3] * min(rank, 1))
    numbers = np.arange(math.prod(shape)).reshape(shape)
    dtype = np.dtype(tf.as_dtype(name).as_numpy_dtype)
    if dtype.names:
        array = np.zeros(shape, dtype)
        array[dtype.names[0]] = numbers
        return array
    return numbers.astype("S").astype(object) if dtype.hasobject else (numbers % 2).astype(dtype)


def batches_of(arrays: dict[str, Any]) -> Any:
    return ({key: array[i : i + BATCH] for key, array in arrays.items()} for i in range(0, RECORDS, BATCH))


WAYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "blocks": lambda arrays: staging.staged(source_of(arrays)),
    "one by one": lambda arrays: staging.staged(source_of(arrays), ignored_exception_types=(ValueError,)),
    "lockstep": lambda arrays: staging.staged(source_of(arrays), lockstep=True),
    "towers": lambda arrays: staging.staged(source_of(arrays), devices=["/cpu:0"] * 2),
    "a generator": lambda arrays: staging.staged(lambda: batches_of(arrays)),
    "whole batches": lambda arrays: staging.CustomRunner(source_of(arrays), queue="fifo").get_inputs(),
    "queued records": lambda arrays: staging.CustomRunner(
        source_of(arrays), queue="fifo", batch_size=BATCH
    ).get_inputs(),
}


def source_of(arrays: dict[str, Any]) -> ArraySource:
    return ArraySource(arrays, batch_size=BATCH, epochs=1)


@pytest.fixture(autouse=True)
def _blocks_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = cycle([3, 1, 2])
    monkeypatch.setattr(BlockSize, "note", lambda self, *_: setattr(self, "batches", next(sizes)))


def delivered(how: str, arrays: dict[str, Any]) -> tuple[dict[str, list[Any]], str]:
    """Return what the steps get of each component; and why batches are put one by one, if they are."""
    got: dict[str, list[Any]] = {key: [] for key in arrays}
    with tf.Graph().as_default() as graph:
        batch = WAYS[how](arrays)
        (pipeline,) = pipelines_of(graph)
        with staging.StagingSession() as sess:
            while not sess.should_stop():
                taken = sess.run(batch)
                for key in arrays:
                    # Towers alternate: the first has records 0 and 2, the second 1 and 3.
                    parts = [tower[key] for tower in taken] if how == "towers" else [taken[key]]
                    rows = np.stack(parts, axis=1)
                    got[key] += [*rows.reshape(-1, *rows.shape[2:])]
    return got, pipeline.plan.one_by_one


@pytest.mark.slow_cases("(u?int[24]|float8_.*|qu?int.*)-.*")
@pytest.mark.parametrize(("name", "how"), some_of([(name, how) for name in DTYPES for how in WAYS]))
def test_records_arrive_or_are_refused_by_name(name: str, how: str) -> None:
    dtype = np.dtype(tf.as_dtype(name).as_numpy_dtype)
    is_new = dtype.type.__module__ == "ml_dtypes" and name != "bfloat16"
    for ranks, fit_in_blocks in ((range(7), not is_new and not dtype.names), (range(7, 10), False)):
        arrays = {f"rank_{rank}": records(name, rank) for rank in ranks}
        if how == "queued records" and (is_new or name in ("qint16", "quint16")):
            with pytest.raises(SpecError, match="cannot split batches of that dtype into records"):
                delivered(how, arrays)
            continue
        got, one_by_one = delivered(how, arrays)
        for key, array in arrays.items():
            # Fetched as the numbers that stand for it.
            expected = array[dtype.names[0]] if dtype.names else array
            np.testing.assert_array_equal(np.stack(got[key]).astype(expected.dtype), expected)
            assert dtype.hasobject or got[key][0].dtype == expected.dtype
        if how == "blocks":
            assert (one_by_one == "") == (fit_in_blocks and name != "string")
