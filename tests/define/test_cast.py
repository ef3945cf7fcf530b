"""`staged(cast=)`: components staged in a smaller dtype, and the messages for invalid casts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

IMAGES = np.linspace(0, 1, 12 * 256, dtype=np.float32).reshape(12, 256)
ARRAYS = {"image": IMAGES, "label": np.arange(12)}


def source(**other: Any) -> ArraySource:
    return ArraySource(ARRAYS, **{"batch_size": 4, "epochs": 1, **other})


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices(ARRAYS).batch(4, drop_remainder=True)


def tensors() -> Any:
    return tf.data.make_one_shot_iterator(dataset()).get_next()


@pytest.mark.parametrize("make", [source, dataset, tensors])
@pytest.mark.parametrize("how", [dict(num_threads=1), dict(lockstep=True)], ids=["thread", "lockstep"])
def test_the_component_is_staged_in_the_dtype_and_the_others_as_they_are(graph: Any, make: Any, how: Any) -> None:
    batch = staging.staged(make(), cast={"image": tf.float16}, **how)
    assert (batch["image"].dtype, batch["label"].dtype) == (tf.float16, tf.int64)
    (sink,) = pipelines_of(graph)[0].sinks
    assert sorted(value.dtype.name for value in sink.put.values) == ["float16", "int64"], "what is held"
    got = []
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            got.append(sess.run(batch))
    assert np.array_equal(np.concatenate([each["image"] for each in got]), IMAGES.astype(np.float16))
    assert np.concatenate([each["label"] for each in got]).tolist() == list(range(12))


def test_a_dtype_alone_is_for_all_components_and_each_is_for_all_towers(graph: Any) -> None:
    single, pair, towers = (
        staging.staged(ArraySource(IMAGES, batch_size=4), cast="float16"),
        staging.staged(ArraySource((IMAGES, IMAGES), batch_size=4), cast=np.float64),
        staging.staged(ArraySource(IMAGES, batch_size=4), cast=tf.bfloat16, devices=["/cpu:0"] * 2),
    )
    assert single.dtype == tf.float16 and [part.dtype for part in pair] == [tf.float64, tf.float64]
    assert [tower.dtype for tower in towers] == [tf.bfloat16, tf.bfloat16]


def test_the_values_of_sparse_and_ragged_components_are_cast(graph: Any) -> None:
    values = {
        "sparse": tf.SparseTensor([[1]], [0.5], [4]),
        "ragged": tf.RaggedTensor.from_row_lengths([1.5, 2.5], [2]),
        "rest": tf.constant(3.5),
    }
    batch = staging.staged(values, cast={"sparse": tf.float16, "ragged": tf.int32})
    assert [batch[name].dtype for name in ("sparse", "ragged", "rest")] == [tf.float16, tf.int32, tf.float32]
    with staging.StagingSession() as sess:
        got = sess.run(batch)
    assert got["sparse"].values.tolist() == [0.5] and got["ragged"].to_list() == [[1, 2]] and got["rest"] == 3.5


def test_the_memory_limit_counts_the_bytes_that_are_staged(graph: Any) -> None:
    bytes_as_float32 = 4 * 256 * 4

    def capacity(values: Any, **other: Any) -> int:
        staging.staged(values, capacity=8, memory_limit=2 * bytes_as_float32, **other)
        return int(pipelines_of(graph)[-1].sinks[0].capacity)

    for make in (
        lambda: ArraySource(IMAGES, batch_size=4),
        lambda: tf.data.Dataset.from_tensor_slices(IMAGES).batch(4, drop_remainder=True),
        lambda: tf.zeros([4, 256]),
    ):
        assert (capacity(make()), capacity(make(), cast=tf.float16), capacity(make(), cast=tf.int8)) == (2, 4, 8)
    assert capacity(source(), cast={"image": tf.uint8}) == 2 * bytes_as_float32 // (4 * 256 + 4 * 8)


NO_NUMBERS = (
    "staged(): component 'name' is of dtype string and cannot be cast to float16. Name only components that hold "
    "numbers in cast=."
)
NO_DTYPE = "staged() got cast={}, expected a dtype of numbers, such as tf.float16."
UNKNOWN = "staged(): cast= names unknown component 'picture'. The components are 'image', 'name'."
REFUSED = [
    ({"picture": tf.float16}, SpecError, UNKNOWN),
    ({"name": tf.float16}, SpecError, NO_NUMBERS),
    (tf.float16, SpecError, NO_NUMBERS),
    ({"image": "half a float"}, TypeError, NO_DTYPE.format("{'image': 'half a float'}")),
    ({"image": tf.string}, TypeError, NO_DTYPE.format("{'image': tf.string}")),
]


@pytest.mark.parametrize(("cast", "error", "text"), REFUSED, ids=lambda x: str(x)[:30])
def test_a_cast_that_cannot_be_is_named_and_adds_no_op(graph: Any, cast: Any, error: Any, text: str) -> None:
    named = ArraySource({"image": IMAGES, "name": np.array([b"n"] * 12, object)}, batch_size=4)
    with pytest.raises(error) as caught:
        staging.staged(named, cast=cast)
    assert str(caught.value) == text
    assert not graph.get_operations()


def test_a_single_component_has_no_path(graph: Any) -> None:
    with pytest.raises(SpecError) as caught:
        staging.staged(ArraySource(IMAGES, batch_size=4), cast={"image": tf.float16})
    assert str(caught.value) == (
        "staged(): cast= names unknown component 'image'. There is one component, and it has no name: give its dtype "
        "alone, as in cast=tf.float16."
    )
