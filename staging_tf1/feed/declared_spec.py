"""`staged(..., spec=)`: what the values were declared to be, compared before anything runs."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import shown
from staging_tf1.errors import SpecError
from staging_tf1.feed.components import as_tf_dtype, is_dense
from staging_tf1.spec import ArraySpec, describe, flatten_with_paths, pack

_NOTHING = "-"


def with_declared(components: Any, spec: Any, what: str) -> Any:
    """The specs with what `spec` knows more of the shapes.

    Args:
      components: a nest of specs, of what the values are.
      spec: a nest of `tf.TensorSpec`, `ArraySpec`, `tf.SparseTensorSpec` or `tf.RaggedTensorSpec`; None declares
        nothing.
      what: whose argument it is, for messages.

    Raises:
      TypeError: `spec` holds something else.
      SpecError: the values are not as declared; a table of all components says where.
    """
    if spec is None:
        return components
    got = dict(flatten_with_paths(components))
    declared = {path: _checked(leaf, path, what) for path, leaf in flatten_with_paths(spec)}
    rows = [
        (path or "(the only one)", _shown(got.get(path)), _shown(declared.get(path)), _conflict(got, declared, path))
        for path in [*got, *(path for path in declared if path not in got)]
    ]
    if any(row[-1] for row in rows):
        raise SpecError(
            f"{what} got other values than spec= declares:\n{_table(rows)}\n"
            f"Declare what there is, or convert it before (map, tf.cast); staged(cast=) stages a component in another "
            f"dtype."
        )
    return pack(components, [_merged(leaf, declared[path]) for path, leaf in got.items()])


def _checked(leaf: Any, path: str, what: str) -> Any:
    if isinstance(leaf, ArraySpec):
        return tf.TensorSpec(leaf.shape, as_tf_dtype(leaf.dtype))
    if not isinstance(leaf, tf.TypeSpec):
        raise TypeError(
            f"{what} got spec= with {shown(leaf)}{f' as component {path!r}' if path else ''}, wanted a nest of "
            f"tf.TensorSpec, such as tf.TensorSpec([None, 784], tf.float32)."
        )
    return leaf


def _conflict(got: dict[str, Any], declared: dict[str, Any], path: str) -> str:
    if path not in declared:
        return "not declared"
    if path not in got:
        return "missing"
    have, want = got[path], declared[path]
    if type(have) is not type(want):
        return "kind"
    words = []
    if getattr(have, "dtype", None) != getattr(want, "dtype", None):
        words.append("dtype")
    if hasattr(have, "shape") and not tf.TensorShape(have.shape).is_compatible_with(want.shape):
        words.append("shape")
    if not words and not is_dense(have) and not want.is_compatible_with(have):
        words.append("kind")
    return " and ".join(words)


def _merged(have: Any, want: Any) -> Any:
    return tf.TensorSpec(have.shape.merge_with(want.shape), have.dtype) if is_dense(have) else have


def _shown(spec: Any) -> str:
    if spec is None:
        return _NOTHING
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        return type(spec).__name__
    kind = "" if is_dense(spec) else f"{type(spec).__name__.removesuffix('Spec')} "
    return kind + describe(spec.dtype, spec.shape)


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = [("component", "got", "declared", "conflict"), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )
