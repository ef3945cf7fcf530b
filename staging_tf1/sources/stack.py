"""Makes a batch of single records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from staging_tf1.arrays import as_array, describe, is_plain
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_up_to, flatten_with_paths, pack

__all__ = ["record_specs", "stack"]


def record_specs(record: Any, batch_dim: int | None) -> Any:
    """The spec of batches of records like `record`."""
    leaves = []
    for path, leaf in flatten_with_paths(record):
        array = as_array(leaf, None, f"parse_fn: {component_name(path)}")
        leaves.append(ArraySpec((batch_dim, *array.shape), array.dtype, path or None))
    return pack(record, leaves)


def stack(like: Any, numbers: list[int], records: Iterable[Any], describe_record: Callable[[int], str]) -> Any:
    """Stacks records into fresh aligned arrays, each before the next one is taken.

    Args:
      like: the record that sets structure, dtypes and shapes.
      numbers: the records' numbers.
      records: the records.
      describe_record: names a record by its number, for messages.

    Raises:
      SpecError: a record is not like `like`.
    """
    specs = flatten(record_specs(like, None))
    batch = [aligned_empty((len(numbers), *spec.shape[1:]), spec.dtype) for spec in specs]
    for row, (number, record) in enumerate(zip(numbers, records, strict=True)):
        try:
            arrays = [
                (path, leaf if is_plain(leaf) else as_array(leaf, spec.dtype, component_name(path)))
                for spec, (path, leaf) in zip(specs, flatten_up_to(like, record))
            ]
        except SpecError as error:
            raise SpecError(f"{describe_record(number)}: parse_fn: {error}") from error
        for target, spec, (path, array) in zip(batch, specs, arrays):
            if array.shape != spec.shape[1:] or array.dtype != spec.dtype:
                raise SpecError(
                    f"{describe_record(number)}: parse_fn gave {f'component {path!r} as ' if path else ''}"
                    f"{describe(array.dtype, array.shape)}, for the first record "
                    f"{describe(spec.dtype, spec.shape[1:])}. Records of one batch must be alike: pad or "
                    "crop them."
                )
            target[row] = array if array.ndim else array[()]
    return pack(like, batch)
