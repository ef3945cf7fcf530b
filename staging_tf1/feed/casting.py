"""`staged(..., cast=)`: components that are staged in another dtype than they come in."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.arguments import shown
from staging_tf1.errors import SpecError
from staging_tf1.feed.components import castable, is_dense
from staging_tf1.spec import flatten_with_paths, pack


def with_casts(components: Any, cast: Any, what: str) -> Any:
    """The specs with the dtypes that `cast` names.

    Args:
      components: a nest of specs.
      cast: a dtype for all components, or a dict from component paths to dtypes; None changes nothing.
      what: whose argument it is, for messages.

    Raises:
      TypeError: no dtype, or one that nothing can be cast to.
      SpecError: a path that is no component's, or a component that cannot be cast.
    """
    if cast is None:
        return components
    specs = dict(flatten_with_paths(components))
    if isinstance(cast, Mapping):
        dtypes = {path: _dtype(dtype, f"cast={{{path!r}: {shown(dtype)}}}", what) for path, dtype in cast.items()}
    else:
        dtypes = dict.fromkeys(specs, _dtype(cast, f"cast={shown(cast)}", what))
    for path, dtype in dtypes.items():
        if path not in specs:
            raise SpecError(f"{what} got cast= for the component {shown(path)}, which there is not. {_listed(specs)}")
        specs[path] = _cast_spec(specs[path], dtype, f"{what}: component {path!r}")
    return pack(components, specs.values())


def _dtype(dtype: Any, shown: str, what: str) -> Any:
    wanted = "wanted a dtype of numbers, such as tf.float16"
    try:
        # tf.as_dtype takes the numbers of its enumeration, too: True and 1 are float32.
        if dtype is None or isinstance(dtype, (numbers.Number, np.generic, np.ndarray)):
            raise TypeError
        found = tf.as_dtype(dtype).base_dtype
    except Exception:
        raise TypeError(f"{what} got {shown}, {wanted}.") from None
    if not castable(found):
        raise TypeError(f"{what} got {shown}, {wanted}.")
    return found


def _listed(specs: Mapping[str, Any]) -> str:
    if list(specs) == [""]:
        return "There is one component, without a name: give its dtype alone, as in cast=tf.float16."
    return f"The components are {', '.join(map(repr, specs))}."


def _cast_spec(spec: Any, dtype: Any, component: str) -> Any:
    had = getattr(spec, "dtype", None)
    if had is None or not castable(had):
        raise SpecError(
            f"{component} is {'no tensor' if had is None else f'of dtype {had.name}'}, which cannot be cast to "
            f"{dtype.name}. Name in cast= only components that hold numbers."
        )
    if is_dense(spec):
        return tf.TensorSpec(spec.shape, dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec(spec.shape, dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(spec.shape, dtype, spec.ragged_rank, spec.row_splits_dtype)
    raise SpecError(f"{component} is a {type(spec).__name__}, which cannot be cast. Leave it out of cast=.")
