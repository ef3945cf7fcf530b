"""Builds a cache once, in spite of several processes, a kill or a full disk. All records are like the first one."""

from __future__ import annotations

import contextlib
import datetime
import os
from typing import Any

import numpy as np
from absl import logging

from staging_tf1.arguments import INT64_MAX
from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.progress import is_terminal, tqdm_bar
from staging_tf1.sources.columns import folder
from staging_tf1.sources.columns.files import ComponentWriter
from staging_tf1.sources.columns.inputs import CacheInput
from staging_tf1.sources.columns.manifest import Manifest, encoded
from staging_tf1.sources.stacking import record_arrays, refuse_empty_list
from staging_tf1.spec import component_name, component_paths, flatten, flatten_up_to, pack
from staging_tf1.spec.arrays import as_array, describe


def built(path: str, data: CacheInput, limit: int | None, if_changed: str, progress: bool) -> None:
    """Build the cache at `path` from the first `limit` records of the data, unless it is there and up to date.

    Raises:
      RecordFileError: the cache cannot be written; the path is something else; the cache is out of date, and
        `if_changed` is "error".
      SpecError: there are no records, or they differ. Exceptions of the data are raised as they are.
    """
    if not _is_missing(path, data, if_changed):
        if folder.has_remains(path):
            # If the folder is not writable, they stay.
            with contextlib.suppress(RecordFileError), folder.locked(path):
                pass
        return
    with folder.writing(path):
        os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
    with folder.locked(path):
        # Another process may have built it meanwhile.
        if _is_missing(path, data, if_changed, log=True):
            with folder.replacing_cache(path) as new:
                _write(path, new, data, limit, progress)


def _is_missing(path: str, data: CacheInput, if_changed: str, log: bool = False) -> bool:
    reasons = folder.reasons_to_build(path, data.key)
    if not reasons:
        return reasons is None
    if if_changed == "error":
        raise RecordFileError(
            f"cached(): the cache {path!r} is out of date: {'; '.join(reasons)}. Build it again with "
            f"if_changed='rebuild', or choose another path."
        )
    if log:
        logging.warning("building the cache %s again: %s", path, "; ".join(reasons))
    return True


def _write(path: str, new: str, data: CacheInput, limit: int | None, progress: bool) -> None:
    total, most = data.total or limit, limit or INT64_MAX
    bar = tqdm_bar(
        progress and is_terminal(),
        total=total and min(total, most),
        unit=" records",
        desc=f"cache {os.path.basename(path)}",
    )
    with bar, contextlib.closing(RecordWriter(new)) as writer:
        for block in data.blocks():
            with folder.writing(path):
                bar.update(writer.append(block.value, block.stacked, most - writer.num_records))
            if writer.num_records == most:
                break
        if not writer.num_records:
            raise SpecError("cached() got no records, expected at least one. Nothing was written.")
        with folder.writing(path):
            folder.write_manifest(new, writer.finish(data.key))


class RecordWriter:
    """Writes records into a folder. The first one decides the structure, the dtypes and the ranks.

    Use it with `contextlib.closing`.

    Args:
      folder: where to write.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.num_records = 0
        self._structure: Any = None
        self._paths: Any = None
        self._writers: list[ComponentWriter] = []

    def append(self, value: Any, stacked: bool, most: int) -> int:
        """Append a record, or at most `most` of several that are stacked. Return how many were appended."""
        where = f"cached(): record {self.num_records}"
        if value is None:
            raise SpecError(f"{where} is None, expected a nest of arrays and numbers.")
        if self._paths is None:
            self._begin(value, stacked, where)
        try:
            arrays = record_arrays(self._paths, self._writers, value, where)
        except SpecError as error:
            raise SpecError(f"{error} All records must have the structure of the first one.") from error
        rows = [_as_rows(array, writer, stacked, where) for (_, array), writer in zip(arrays, self._writers)]
        count = min(_common_length(rows, where), most)
        for writer, array in zip(self._writers, rows):
            writer.append(array[:count])
        self.num_records += count
        return count

    def _begin(self, value: Any, stacked: bool, where: str) -> None:
        self._paths = component_paths(value)
        self._structure = encoded(pack(self._paths, range(len(flatten(self._paths)))))
        for number, (path, leaf) in enumerate(flatten_up_to(self._paths, value, where)):
            what = f"{where}: {component_name(path)}"
            refuse_empty_list(leaf, what)
            array = as_array(leaf, None, what)
            if array.dtype.names:
                raise SpecError(f"{what} is {array.dtype}, expected numbers or strings.")
            shape = _row_shape(array, stacked, what)
            self._writers.append(ComponentWriter(self._folder, number, path, array.dtype, shape))
        if not self._writers:
            raise SpecError(f"{where} has no component, expected at least one array.")

    def finish(self, key: dict[str, Any]) -> Manifest:
        """Close the files, and return the manifest."""
        components = [writer.finish() for writer in self._writers]
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        return Manifest(self.num_records, self._structure, components, key, now)

    def close(self) -> None:
        """Close the files as they are."""
        for writer in self._writers:
            writer.close()


def _as_rows(array: np.ndarray[Any, Any], like: ComponentWriter, stacked: bool, where: str) -> np.ndarray[Any, Any]:
    what = f"{where}: {component_name(like.path)}"
    shape = _row_shape(array, stacked, what)
    if array.dtype != like.dtype or len(shape) != len(like.shape):
        got, expected = describe(array.dtype, shape), describe(like.dtype, like.shape)
        raise SpecError(
            f"{what} is {got}, but {expected} in record 0. All records must have the same dtype and number of "
            f"dimensions; only the sizes may differ."
        )
    return array if stacked else array[None]


def _row_shape(array: np.ndarray[Any, Any], stacked: bool, where: str) -> tuple[int, ...]:
    if stacked and not array.ndim:
        raise SpecError(f"{where} is one value, expected a batch with one row per record. For records: batched=False.")
    shape: tuple[int, ...] = array.shape
    return shape[1:] if stacked else shape


def _common_length(rows: list[np.ndarray[Any, Any]], where: str) -> int:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise SpecError(f"{where}: the components of a batch have {sorted(lengths)} rows, expected the same number.")
    return lengths.pop()
