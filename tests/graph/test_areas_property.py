"""Every put value comes back: random dtypes, shapes, names and kinds of values, compared with numpy."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from slow import examples

from staging_tf1.graph.areas import StagingArea

DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "uint16", "bool", "complex64"]


@st.composite
def elements(draw: Any) -> list[np.ndarray[Any, Any]]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes))
    return draw(st.lists(arrays, min_size=1, max_size=4))  # type: ignore[no-any-return]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(
    arrays=elements(),
    named=st.booleans(),
    given_as=st.sampled_from(["array", "tensor", "placeholder", "python"]),
    declare_shapes=st.booleans(),
    puts=st.integers(1, 3),
)
def test_round_trip(arrays: list[Any], named: bool, given_as: str, declare_shapes: bool, puts: int) -> None:
    with tf.Graph().as_default():
        area = StagingArea(
            [a.dtype for a in arrays],
            shapes=[a.shape for a in arrays] if declare_shapes else None,
            names=[f"n{i}" for i in range(len(arrays))] if named else None,
        )
        if given_as == "python" and all(a.size for a in arrays):
            values, feed = [a.tolist() for a in arrays], {}
        elif given_as == "placeholder":
            values = [tf.placeholder(a.dtype, a.shape) for a in arrays]
            feed = dict(zip(values, arrays, strict=True))
            values = list(values)
        else:
            values, feed = [tf.constant(a) if given_as == "tensor" else a for a in arrays], {}
        put = area.put(dict(zip(area.names, values, strict=True)) if area.names else values)
        got, size = area.get(), area.size()
        with tf.Session() as sess:
            for _ in range(puts):
                sess.run(put, feed)
            assert sess.run(size) == puts
            for _ in range(puts):
                out = sess.run(got)
                listed = [out[name] for name in area.names] if area.names else out
                for array, back in zip(arrays, listed, strict=True):
                    assert back.dtype == array.dtype
                    np.testing.assert_array_equal(back, array)
            assert sess.run(size) == 0
