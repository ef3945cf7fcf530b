"""Builds a cache once, in spite of several processes, a kill or a full disk. All records are like the first one."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.progress import is_terminal, tqdm_bar
from staging_tf1.sources.columns import folder
from staging_tf1.sources.columns.files import Component, ComponentWriter
from staging_tf1.sources.columns.inputs import CacheInput
from staging_tf1.sources.columns.manifest import (
    MANIFEST,
    Manifest,
    decoded,
    dtype_named,
    encoded,
    new_token,
)
from staging_tf1.spec import component_name, component_paths, flatten, flatten_up_to, pack
from staging_tf1.spec.arrays import as_array, describe, is_plain

# Seconds between two reports to waiting processes, and between two savings of the progress, which need an fsync.
_REPORT_SECS, _SAVE_SECS = 1.0, 5.0


class Build(NamedTuple):
    """A cache to build.

    Attributes:
      owner: the caller, for messages.
      path: the folder of the cache.
      key: what is known of the data.
      data: the data.
      limit: the most records to store, or None.
      if_changed: "rebuild" or "error".
      progress: whether to show a progress bar on a terminal.
    """

    owner: str
    path: str
    key: dict[str, Any]
    data: CacheInput
    limit: int | None
    if_changed: str
    progress: bool


def built(build: Build) -> None:
    """Build the cache, unless it is there and up to date.

    Raises:
      RecordFileError: the cache cannot be written; the path is something else; the cache is out of date, and
        `if_changed` is "error".
      SpecError: there are no records, or they differ. Exceptions of the data are raised as they are.
    """
    if not _is_missing(build):
        if folder.has_replaced(build.path):
            # If the folder is not writable, the old files stay.
            with contextlib.suppress(RecordFileError, OSError), folder.locked(build.path):
                if folder.has_replaced(build.path):
                    folder.remove_replaced(build.path)
        return
    with folder.writing(build.owner, build.path):
        os.makedirs(os.path.dirname(build.path) or os.curdir, exist_ok=True)
    with folder.locked(build.path) as report:
        # Another process may have built it meanwhile.
        if _is_missing(build, log=True):
            _Building(build, report).run()


def _is_missing(build: Build, log: bool = False) -> bool:
    reasons = folder.reasons_to_build(build.path, build.key)
    if not reasons:
        return reasons is None
    if build.if_changed == "error":
        raise RecordFileError(
            f"{build.owner}: the cache {build.path!r} is out of date: {'; '.join(reasons)}. Build it again with "
            f"if_changed='rebuild', or choose another path."
        )
    if log:
        logging.warning("building the cache %s again: %s", build.path, "; ".join(reasons))
    return True


class _Building:
    """One attempt to build a cache."""

    def __init__(self, build: Build, report: Callable[[str], None]) -> None:
        self._build, self._report = build, report
        self._position: int | None = 0
        self._reported = self._saved = time.monotonic()

    def run(self) -> None:
        build = self._build
        saved = folder.saved_progress(build.path, build.key) if build.data.has_random_access else None
        building = folder.building_folder(build.path)
        with folder.writing(build.owner, build.path):
            if saved is None:
                folder.remove_remains(build.path)
                os.mkdir(building)
                self._token = new_token() if os.path.exists(os.path.join(build.path, MANIFEST)) else ""
            else:
                self._position, self._token = saved["position"], saved["token"]
                logging.warning(
                    "continuing the cache %s after %d records that an earlier run stored; if the code has changed "
                    "since, run staging-tf1 cache remove %s",
                    build.path,
                    saved["records"]["num_records"],
                    build.path,
                )
            self._writer = RecordWriter(building, build.owner, self._token, None if saved is None else saved["records"])
        try:
            self._write_all()
            with folder.writing(build.owner, build.path):
                self._finish()
        except BaseException as error:
            self._give_up(error)
            raise

    def _write_all(self) -> None:
        build, writer = self._build, self._writer
        total = build.data.total if build.limit is None else min(build.limit, build.data.total or build.limit)
        blocks = build.data.blocks(self._position or 0)
        with tqdm_bar(
            build.progress and is_terminal(),
            total=total,
            initial=writer.num_records,
            unit=" records",
            desc=f"cache {os.path.basename(build.path)}",
        ) as bar:
            while build.limit is None or writer.num_records < build.limit:
                block = next(blocks, None)
                if block is None:
                    break
                most = None if build.limit is None else build.limit - writer.num_records
                # A build cannot continue in the middle of a block.
                self._position = None
                with folder.writing(build.owner, build.path):
                    bar.update(writer.append(block.value, block.stacked, most))
                    self._note(block.position, total)

    def _note(self, position: int | None, total: int | None) -> None:
        self._position = position
        now = time.monotonic()
        if now - self._reported >= _REPORT_SECS:
            self._reported = now
            self._report(f"{self._writer.num_records}{'' if total is None else f' of {total}'} records")
        if position is not None and now - self._saved >= _SAVE_SECS:
            self._save()
            self._saved = time.monotonic()

    def _save(self) -> None:
        progress = {"key": self._build.key, "position": self._position, "token": self._token}
        folder.save_progress(self._build.path, {**progress, "records": self._writer.progress()})

    def _finish(self) -> None:
        if not self._writer.num_records:
            raise SpecError(f"{self._build.owner} got no records, expected at least one. Nothing was written.")
        structure, components = self._writer.finish()
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        folder.commit(self._build.path, Manifest(self._writer.num_records, structure, components, self._build.key, now))

    def _give_up(self, error: BaseException) -> None:
        """Keep the progress after an interrupt or an `OSError` of the data, if a build can continue; else remove it."""
        # Any other exception is a fault of the data's code. When it is fixed, the stored records would be outdated.
        from_outside = not isinstance(error, Exception) or isinstance(error, OSError)
        can_continue = self._build.data.has_random_access and from_outside and not isinstance(error, RecordFileError)
        if can_continue and self._position:
            with contextlib.suppress(OSError):
                self._save()
        self._writer.abandon()
        if not can_continue or folder.saved_progress(self._build.path, self._build.key) is None:
            folder.remove_remains(self._build.path)


class RecordWriter:
    """Writes records into a folder. The first one decides the structure, the dtypes and the ranks.

    Args:
      folder: where to write.
      owner: the caller, for messages.
      token: the end of the names of the files; see `ComponentWriter`.
      saved: a result of `progress`, to continue after it.
    """

    def __init__(self, folder: str, owner: str, token: str, saved: dict[str, Any] | None = None) -> None:
        self._folder, self._owner, self._token = folder, owner, token
        self.num_records = 0 if saved is None else int(saved["num_records"])
        self._structure: Any = None
        self._paths: Any = None
        self._writers: list[ComponentWriter] = []
        if saved is not None:
            self._structure = saved["structure"]
            for number, component in enumerate(saved["components"]):
                dtype, shape = dtype_named(component["dtype"]), tuple(component["shape"])
                self._writers.append(
                    ComponentWriter(folder, number, component["path"], token, dtype, shape, component["files"])
                )
            self._paths = decoded(self._structure, [writer.path for writer in self._writers])

    def append(self, value: Any, stacked: bool, most: int | None) -> int:
        """Append a record, or at most `most` of several that are stacked. Return how many were appended."""
        where = f"{self._owner}: record {self.num_records}"
        if value is None:
            raise SpecError(f"{where} is None, expected a nest of arrays and numbers.")
        if self._paths is None:
            self._begin(value, stacked, where)
        try:
            leaves = flatten_up_to(self._paths, value, where)
        except SpecError as error:
            raise SpecError(f"{error} All records must have the structure of the first one.") from error
        rows = [self._as_rows(leaf, writer, stacked, where) for (_, leaf), writer in zip(leaves, self._writers)]
        count = _common_length(rows, where)
        count = count if most is None else min(count, most)
        for writer, array in zip(self._writers, rows):
            writer.append(array[:count])
        self.num_records += count
        return count

    def _begin(self, value: Any, stacked: bool, where: str) -> None:
        self._paths = component_paths(value)
        paths = flatten(self._paths)
        if not paths:
            raise SpecError(f"{where} has no component, expected at least one array.")
        self._structure = encoded(pack(self._paths, range(len(paths))))
        for number, (path, leaf) in enumerate(flatten_up_to(self._paths, value, where)):
            array = as_array(leaf, None, f"{where}: {component_name(path)}")
            if isinstance(leaf, (list, tuple)) and not array.size:
                raise SpecError(
                    f"{where}: {component_name(path)} is an empty list, which has no dtype, and the first record sets "
                    f"the dtypes. Return arrays, such as np.array(words, np.int64)."
                )
            if array.dtype.names:
                raise SpecError(f"{where}: {component_name(path)} is {array.dtype}, expected numbers or strings.")
            shape = _row_shape(array, stacked, f"{where}: {component_name(path)}")
            self._writers.append(ComponentWriter(self._folder, number, path, self._token, array.dtype, shape))

    def _as_rows(self, leaf: Any, like: ComponentWriter, stacked: bool, where: str) -> np.ndarray[Any, Any]:
        array = leaf if is_plain(leaf) else as_array(leaf, like.dtype, f"{where}: {component_name(like.path)}")
        shape = _row_shape(array, stacked, f"{where}: {component_name(like.path)}")
        if array.dtype != like.dtype or len(shape) != len(like.shape):
            got, expected = describe(array.dtype, shape), describe(like.dtype, like.shape)
            raise SpecError(
                f"{where}: {component_name(like.path)} is {got}, but {expected} in record 0. All records must have the "
                f"same dtype and number of dimensions; only the sizes may differ."
            )
        return array if stacked else array[None]

    def progress(self) -> dict[str, Any]:
        """Return where to continue, after all bytes so far are on the disk."""
        components = [
            {"path": writer.path, "dtype": writer.dtype.name, "shape": writer.shape, "files": writer.progress()}
            for writer in self._writers
        ]
        return {"num_records": self.num_records, "structure": self._structure, "components": components}

    def finish(self) -> tuple[Any, tuple[Component, ...]]:
        """Close the files. Return the encoded structure and its components."""
        return self._structure, tuple(writer.finish() for writer in self._writers)

    def abandon(self) -> None:
        """Close the files as they are."""
        for writer in self._writers:
            writer.abandon()


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
