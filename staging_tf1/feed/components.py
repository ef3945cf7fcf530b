"""What an inlet gives and what is staged of it: one spec a component, known before any op is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.arrays import as_numpy_dtype
from staging_tf1.errors import SpecError
from staging_tf1.sources import Source, StreamSource
from staging_tf1.spec import flatten, map_structure


def of_tensors(values: Any) -> Any:
    """The specs of a nest of tensors, variables and what makes tensors."""
    return map_structure(_of_value, values)


def of_dataset(dataset: Any) -> Any:
    """The specs of a `tf.data.Dataset`'s elements."""
    return dataset.element_spec


def of_source(source: Source | StreamSource, spec: Any) -> Any:
    """The specs of a source's batches, as the graph sees them: parsed, if it parses them."""
    if source.features is None:
        return map_structure(lambda leaf: tf.TensorSpec(leaf.shape, as_tf_dtype(leaf.dtype)), spec)
    with tf.Graph().as_default():  # what parse_example makes of the features, in no graph of the caller's
        serialized = tf.placeholder(tf.string, flatten(spec)[0].shape)
        return map_structure(_of_value, tf.io.parse_example(serialized, source.features))


def as_tf_dtype(dtype: Any) -> Any:
    """TensorFlow's dtype for numpy's; `object` stands for strings.

    Raises:
      SpecError: the installed TensorFlow has no such tensors.
    """
    wanted = as_numpy_dtype(dtype)
    if wanted.hasobject:
        return tf.string
    try:
        return tf.as_dtype(wanted)
    except TypeError:
        raise SpecError(
            f"TensorFlow {tf.__version__} has no tensors of dtype {wanted}. Declare another one, and cast the "
            "component to it, for example array.astype(np.float32)."
        ) from None


def can_be_split(dtype: np.dtype[Any]) -> bool:
    """Whether the kernels of `enqueue_many` know the dtype: of the small ones of ml_dtypes they know one."""
    return dtype.type.__module__ != "ml_dtypes" or dtype.name == "bfloat16"


def element_bytes(components: Any, batch_size: int | None) -> int | None:
    """Bytes of one element; None where the specs do not tell.

    Args:
      components: a nest of specs.
      batch_size: what an open first dimension is at most; None if that is not known.
    """
    sizes = [_bytes(leaf, batch_size) for leaf in tf.nest.flatten(components)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def is_dense(spec: Any) -> bool:
    """Whether `spec` is that of one plain tensor."""
    return isinstance(spec, tf.TensorSpec)


def _bytes(spec: Any, batch_size: int | None) -> int | None:
    if not is_dense(spec) or spec.shape.rank is None or not castable(spec.dtype):
        return None
    dims = spec.shape.as_list()
    if dims and dims[0] is None:
        dims[0] = batch_size
    return None if None in dims else math.prod(dims) * int(spec.dtype.size)


def castable(dtype: Any) -> bool:
    """Whether `tf.cast` takes the dtype: numbers and booleans."""
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex)


def _of_value(leaf: Any) -> Any:
    if isinstance(leaf, tf.Variable):
        return tf.TensorSpec(leaf.shape, leaf.dtype.base_dtype)
    if not tf.is_tensor(leaf):
        if tf.nest.is_nested(leaf):  # an attrs class
            return tf.nest.map_structure(_of_value, leaf)
        with tf.Graph().as_default():
            leaf = tf.convert_to_tensor(leaf)
    if isinstance(leaf, tf.Tensor):
        return tf.TensorSpec(leaf.shape, leaf.dtype.base_dtype)
    return tf.type_spec_from_value(leaf)
