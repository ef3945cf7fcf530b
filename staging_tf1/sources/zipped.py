"""Record `i` of several sources as one record."""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import SpecError
from staging_tf1.sources.batches import Options
from staging_tf1.sources.blocks import has_blocks
from staging_tf1.sources.parts import Combination, agreed_options, check_part, check_plain
from staging_tf1.sources.records import RecordSource
from staging_tf1.spec import flatten, flatten_with_paths, is_structure, map_structure, named_by_path, pack

_CALLER = "zip_records()"


def zip_records(sources: Any) -> RecordSource:
    """Make one source whose record `i` holds record `i` of each source, as `tf.data.Dataset.zip` does.

    `sources` is a dict, tuple or nest of sources, and batches have its structure. All must have the same options, which
    the result keeps. Unlike in `tf.data`, all must have the same number of records, because a longer source is usually
    misaligned. Use `take` if it is not.

    Raises:
      TypeError: `sources` is not a nest of `RecordSource`.
      SpecError: their numbers of records differ.
      ValueError: their options differ; or one is a shard, padded, arranged by length, parsed in the graph or has a
        transform, or may leave out records.

    >>> images = ArraySource(np.arange(3) * 10, batch_size=2, epochs=1)
    >>> labels = ArraySource(np.arange(3), batch_size=2, epochs=1)
    >>> zip_records({"image": images, "label": labels}).batch(1)
    {'image': array([20]), 'label': array([2])}
    """
    if not is_structure(sources) or not flatten(sources):
        arguments.refuse(_CALLER, "sources", sources, "a dict, tuple or nest of sources with numbered records")
    named = flatten_with_paths(sources)
    for path, part in named:
        check_part(_CALLER, f"source {path!r}", part)
        check_plain(_CALLER, part, "zipped", "zip_records(...)")
    sizes = {path: part.num_records for path, part in named}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{path!r} has {size}" for path, size in sizes.items())
        least = min(sizes.values())
        raise SpecError(f"{_CALLER} got sources of different lengths: {listed}. Cut them: source.take({least}).")
    return Zipped(sources, agreed_options(_CALLER, flatten(sources)))


class Zipped(Combination):
    """What `zip_records` makes."""

    def __init__(self, sources: Any, options: Options) -> None:
        self._sources = sources
        parts = flatten(sources)
        self.gives_away = all(part.gives_away for part in parts)
        self._makes_batches = any(part._makes_batches for part in parts)
        self._copies_rows = all(map(has_blocks, parts))
        self._combine(parts, parts[0].num_records, options)

    def record_spec(self, batch_dim: int | None) -> Any:
        return named_by_path(map_structure(lambda part: part.record_spec(batch_dim), self._sources))

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        return map_structure(lambda part: part._fetch(records), self._sources)

    def _read_single(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        read = [[record for _, record in part._single(numbers)] for part in self._parts]
        records = (pack(self._sources, row) for row in zip(*read, strict=True))
        return list(zip(numbers.tolist(), records, strict=True))

    def _recipe(self) -> str:
        parts = ", ".join(f"{path}={part._recipe()}" for path, part in flatten_with_paths(self._sources))
        return self._batching.chosen.text(f"{_CALLER[:-1]}{parts})")
