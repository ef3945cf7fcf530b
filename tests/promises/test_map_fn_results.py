"""What `staged(map_fn=)` stages is what the function returned: of each dtype and rank, and whatever memory it is in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.python.framework import dtypes

import staging_tf1 as staging
from staging_tf1.errors import BuildError, SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource, aligned_empty

pytestmark = pytest.mark.usefixtures("quick_graphs")

BATCHES = 6
# All of the installed TensorFlow that are bits.
DTYPES = sorted(
    {dtype for dtype in vars(dtypes).values() if isinstance(dtype, tf.DType) and not dtype._is_ref_dtype}
    - {tf.resource, tf.variant, tf.string},
    key=lambda dtype: dtype.name,
)
SHAPES = [[2, 3, 2][:rank] for rank in range(4)]
# The bits of a value that is smaller than a byte.
BITS = {"bool": 1, "int2": 3, "uint2": 3}
FED: list[dict[str, Any]] = [dict(), dict(num_threads=3, capacity=5), dict(lockstep=True)]


def content(dtype: Any, shape: list[int], seed: int) -> bytes:
    bits = BITS.get(dtype.name, 15 if "4" in dtype.name and dtype.size == 1 and "8" not in dtype.name else 255)
    return (
        (np.random.default_rng(seed).integers(0, 256, np.prod([*shape, dtype.size], dtype=int)) & bits)
        .astype(np.uint8)
        .tobytes()
    )


def serialized(dtype: Any) -> np.ndarray[Any, Any]:
    """Return values of each shape for each batch, as TensorFlow writes them."""
    rows = []
    for batch in range(BATCHES):
        protos = [TensorProto(dtype=dtype.as_datatype_enum, tensor_content=content(dtype, s, batch)) for s in SHAPES]
        for proto, shape in zip(protos, SHAPES, strict=True):
            proto.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
        rows.append([proto.SerializeToString() for proto in protos])
    return np.array(rows, object)


@pytest.mark.parametrize("options", FED, ids=str)
def test_each_dtype_and_rank(graph: Any, options: dict[str, Any]) -> None:
    def parsed(batch: Any) -> Any:
        return {
            dtype.name: [
                tf.ensure_shape(tf.io.parse_tensor(batch[dtype.name][0, rank], dtype), shape)
                for rank, shape in enumerate(SHAPES)
            ]
            for dtype in DTYPES
        }

    source = ArraySource({dtype.name: serialized(dtype) for dtype in DTYPES}, batch_size=1, epochs=1)
    x = staging.staged(source, map_fn=parsed, **options)
    with staging.StagingSession() as sess:
        for batch in range(BATCHES):
            got = sess.run(x)
            for dtype in DTYPES:
                for tensor, value, shape in zip(x[dtype.name], got[dtype.name], SHAPES, strict=True):
                    assert tensor.dtype == dtype and list(np.shape(value)) == shape
                    assert np.asarray(value).tobytes() == content(dtype, shape, batch), (dtype, shape)


def strings(batch: Any) -> Any:
    words = tf.strings.join([tf.strings.as_string(batch), "\0"])
    ragged = tf.RaggedTensor.from_row_lengths(words, [1, 0, 2])
    return {
        "ranks": [words[0], words, words[None], words[None, :, None]],
        "joined": tf.strings.reduce_join(words),
        "none": words[:0],
        "ragged": ragged,
        "sparse": ragged.to_sparse(),
        "number": tf.size(words),
        "same": (words, words),
    }


@pytest.mark.parametrize("options", FED, ids=str)
def test_strings_scalars_and_composites(graph: Any, options: dict[str, Any]) -> None:
    x = staging.staged(ArraySource(np.arange(18), batch_size=3, epochs=1), map_fn=strings, **options)
    with staging.StagingSession() as sess:
        for number in range(BATCHES):
            words = [f"{3 * number + place}\0".encode() for place in range(3)]
            got = sess.run(x)
            shaped = [words[0], words, [words], [[[word] for word in words]]]
            assert [np.array(each, object).tolist() for each in got["ranks"]] == shaped
            assert got["joined"] == b"".join(words) and got["none"].shape == (0,) and got["number"] == 3
            assert got["ragged"].to_list() == [words[:1], [], words[1:]]
            assert got["sparse"].values.tolist() == words and got["sparse"].dense_shape.tolist() == [3, 2]
            assert [each.tolist() for each in got["same"]] == [words, words]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: tf.data.Dataset.range(3)._variant_tensor, "variant"),
        (lambda: tf.Variable(1, use_resource=True).handle, "resource"),
    ],
)
def test_what_cannot_be_staged_is_refused_by_name(graph: Any, make: Callable[[], Any], kind: str) -> None:
    made = make()
    with pytest.raises((SpecError, BuildError), match=f"tensor of dtype {kind} as component 'b'|reads the variable"):
        staging.staged(ArraySource(np.arange(3), batch_size=1), map_fn=lambda batch: {"a": batch, "b": made})


# A Python function that returns the same memory each time.


def from_generator(call: Callable[..., Any], batch: Any) -> Any:
    made = tf.data.Dataset.from_generator(lambda number: iter([call(number)]), tf.int64, [64], args=(batch,))
    return tf.data.experimental.get_single_element(made)


KINDS: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "numpy_function": lambda call, batch: tf.numpy_function(call, [batch], tf.int64),
    "no state": lambda call, batch: tf.py_func(call, [batch], tf.int64, stateful=False),
    "py_function": lambda call, batch: tf.py_function(call, [batch], tf.int64),
    "a generator": from_generator,
    "a branch": lambda call, batch: tf.cond(
        batch[0] >= 0, lambda: tf.numpy_function(call, [batch], tf.int64), lambda: tf.zeros([64], tf.int64)
    ),
    "a function": lambda call, batch: tf.function(lambda x: tf.numpy_function(call, [x], tf.int64))(batch),
}
AFTER: dict[str, Callable[[Any], Any]] = {
    "itself": lambda filled: filled,
    "reshaped": lambda filled: tf.reshape(filled, [8, 8]),
    "sliced": lambda filled: tf.reshape(filled, [8, 8])[2:],
    "as other bits": lambda filled: tf.bitcast(filled, tf.uint64),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_a_python_function_writes_again_is_copied(graph: Any, kind: str, after: str) -> None:
    buffer, calls, all_made = aligned_empty((64,), np.int64), [], threading.Event()

    def fill(batch: Any) -> Any:
        buffer[...] = batch[0]
        calls.append(batch)
        if len(calls) == BATCHES:
            all_made.set()
        return buffer

    def mapped(batch: Any) -> Any:
        return batch, AFTER[after](tf.ensure_shape(KINDS[kind](fill, batch), [64]))

    source = ArraySource(np.arange(BATCHES), batch_size=1, epochs=1)
    x = staging.staged(source, map_fn=mapped, capacity=BATCHES)
    with staging.StagingSession() as sess:
        assert all_made.wait(30)
        for number in range(BATCHES):
            batch, filled = sess.run(x)
            assert batch.tolist() == [number] and set(filled.ravel().tolist()) == {number}


def test_only_what_a_python_function_may_have_returned_is_copied(graph: Any) -> None:
    outside = tf.py_func(lambda: np.int64(3), [], tf.int64, stateful=False)

    def mapped(batch: Any) -> Any:
        doubled = tf.numpy_function(lambda x: 2 * x, [batch], tf.int64)
        return {"a": batch + 1, "b": doubled, "c": tf.shape(doubled), "d": tf.fill([2], 3)}

    source = ArraySource(np.arange(3), batch_size=1)
    staging.staged(source, map_fn=mapped, name="inside")
    staging.staged(source, map_fn=lambda batch: (batch, batch + outside), name="outside")
    inside, outside = (pipeline.plan.inputs[0].mapped for pipeline in pipelines_of(graph))
    assert inside is not None and inside.copied == (False, True, True, False)
    assert outside is not None and outside.copied == (True, True)
