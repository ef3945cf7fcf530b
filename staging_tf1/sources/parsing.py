"""Turns serialized records into batches: options and stacking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from staging_tf1 import arguments
from staging_tf1.sources.stacking import stack_records
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_with_paths, pack
from staging_tf1.spec.arrays import as_array

__all__ = ["Parsing", "parsed_spec", "stack"]


class Parsing(NamedTuple):
    """How serialized records become batches. See `TFRecordSource`."""

    features: Any = None
    parse_fn: Callable[[bytes], Any] | None = None
    as_uint8: bool = False
    skip_corrupt: bool = False
    cache_bytes: int = 0

    def checked(self, owner: str, transform: Any) -> Parsing:
        """Check and normalize the options. Two of them may exclude each other."""
        as_uint8 = arguments.flag(owner, "as_uint8", self.as_uint8)
        skip_corrupt = arguments.flag(owner, "skip_corrupt", self.skip_corrupt)
        cache_bytes = arguments.whole(
            owner, "cache_bytes", self.cache_bytes, 0, arguments.INT64_MAX, "bytes to keep in memory"
        )
        if self.features is not None:
            _check_features(owner, self.features)
        if self.parse_fn is not None:
            arguments.function(owner, "parse_fn", self.parse_fn, "a function from bytes to arrays")
        given = {"features=": self.features is not None, "parse_fn=": self.parse_fn is not None, "as_uint8=": as_uint8}
        chosen = [name for name, is_given in given.items() if is_given]
        if len(chosen) > 1:
            raise ValueError(
                f"{owner} got both {chosen[0]} and {chosen[1]}. features= parses in the graph, parse_fn= in Python, "
                f"and as_uint8= does not parse: choose one."
            )
        if as_uint8 and cache_bytes:
            raise ValueError(
                f"{owner} got as_uint8= and cache_bytes=. The page cache of the system already holds such records."
            )
        if self.features is not None and transform is not None:
            raise ValueError(
                f"{owner} got features= and transform=. The transform would get serialized records, because features= "
                "parses later, in the graph. Use parse_fn=, or transform the parsed tensors."
            )
        return Parsing(self.features, self.parse_fn, as_uint8, skip_corrupt, cache_bytes)


def _check_features(owner: str, features: Any) -> None:
    # Duck-typed, because sources do not import TensorFlow. All feature classes are named tuples with a dtype.
    if not isinstance(features, Mapping) or not all(
        isinstance(name, str) and isinstance(feature, tuple) and hasattr(feature, "dtype")
        for name, feature in features.items()
    ):
        expected = "a dict of tf.io.FixedLenFeature and the like, as in tf.io.parse_example"
        arguments.refuse(owner, "features", features, expected)


def parsed_spec(record: Any, batch_dim: int | None) -> Any:
    """Return the spec of batches of parsed records like `record`."""
    leaves = []
    for path, leaf in flatten_with_paths(record):
        array = as_array(leaf, None, f"parse_fn: {component_name(path)}")
        leaves.append(ArraySpec((batch_dim, *array.shape), array.dtype, path or None))
    return pack(record, leaves)


def stack(like: Any, numbers: list[int], records: Iterable[Any], describe_record: Callable[[int], str]) -> Any:
    """Stack parsed records into new aligned arrays. Each record is copied before the next one is taken.

    The record `like` sets the structure, dtypes and shapes. `describe_record` names a record by its number, for
    messages. Raises SpecError if a record differs from `like`.
    """
    specs = flatten(parsed_spec(like, None))
    return stack_records(like, specs, zip(numbers, records, strict=True), len(numbers), describe_record, "parse_fn")
