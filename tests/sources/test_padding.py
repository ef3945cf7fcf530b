"""`pad(mask=True)`: which values of a padded batch are those of a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

import staging_tf1 as staging
from staging_tf1 import testing
from staging_tf1.sources import MapSource
from staging_tf1.spec import ArraySpec, flatten, flatten_with_paths


def records(count: int, rows: list[int], inner: int) -> list[dict[str, Any]]:
    return [
        {"a": np.ones((rows[n % len(rows)], inner), np.float32), "b": {"c": np.ones(2, np.int64), "n": n}}
        for n in range(count)
    ]


@settings(max_examples=examples(40))
@given(
    count=st.integers(1, 12),
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    batch_size=st.integers(1, 5),
    to=st.sampled_from([None, 6, 9, {"a": (None, 5), "b.c": 3}]),
    value=st.sampled_from([0, -1]),
)
def test_the_mask_is_true_where_a_record_has_a_value(
    count: int, rows: list[int], batch_size: int, to: Any, value: int
) -> None:
    data = records(count, rows, 3)
    options: dict[str, Any] = dict(batch_size=batch_size, epochs=1, shuffle=True, seed=1)
    plain, masked = (
        MapSource(data, **options).pad(to, value=value),
        MapSource(data, **options).pad(to, value=value, mask=True),
    )
    assert plain.fingerprint() == masked.fingerprint(), "checkpoints of one fit the other"
    for k in range(plain.num_batches or 0):
        batch, mask = masked.batch(k)
        for (path, padded), (_, with_mask) in zip(flatten_with_paths(plain.batch(k)), flatten_with_paths(batch)):
            assert (padded == with_mask).all() and padded.dtype == with_mask.dtype, path
        for row, number in enumerate(plain.record_ids(k).tolist()):
            record = data[number]
            for leaf, array, flags in zip(flatten(record), flatten(batch), flatten(mask)):
                expected = np.zeros(array.shape[1:], bool)
                expected[tuple(slice(size) for size in np.shape(leaf))] = True
                # Dimensions behind the last one that varies are left out.
                while expected.ndim > flags.ndim - 1:
                    expected = expected.any(axis=-1) if expected.shape[-1] else np.zeros(expected.shape[:-1], bool)
                assert flags.dtype == bool and (flags[row] == expected).all()
        for spec, leaf in zip(flatten(masked.spec), flatten((batch, mask)), strict=True):
            assert spec.dtype == leaf.dtype and all(dim in (None, size) for dim, size in zip(spec.shape, leaf.shape))


def test_the_spec_has_the_dimensions_of_the_mask() -> None:
    data = records(8, [3, 1], 5)
    options: dict[str, Any] = dict(batch_size=4, epochs=1)
    assert flatten(MapSource(data, **options).pad(mask=True).spec) == [
        ArraySpec((4, None, 5), np.float32, "[0].a"),
        ArraySpec((4, None), np.int64, "[0].b.c"),
        ArraySpec((4,), np.int64, "[0].b.n"),
        ArraySpec((4, None), bool, "[1].a"),
        ArraySpec((4, None), bool, "[1].b.c"),
        ArraySpec((4,), bool, "[1].b.n"),
    ]
    assert flatten(MapSource(data, **options).pad({"a": (4, None)}, mask=True).spec)[3].shape == (4, 4, None)


@pytest.mark.usefixtures("quick_graphs")
def test_a_mask_is_staged_beside_its_batch() -> None:
    source = MapSource([[1, 2, 3], [4], [5, 6], []], batch_size=2, epochs=1).pad(mask=True)
    testing.assert_resumes_everywhere(source)
    testing.assert_works_in_processes(source, processes=1)
    with tf.Graph().as_default():
        x, mask = staging.staged(source)
        mean = tf.reduce_sum(tf.cast(x, tf.float64) * tf.cast(mask, tf.float64)) / tf.reduce_sum(
            tf.cast(mask, tf.float64)
        )
        with staging.StagingSession() as sess:
            assert [float(sess.run(mean)) for _ in range(2)] == [2.5, 5.5]
