"""Builds a cache once, in spite of several processes, a kill or a full disk."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import logging

from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.progress import is_terminal, tqdm_bar
from staging_tf1.sources.columns import folder
from staging_tf1.sources.columns.inputs import CacheInput
from staging_tf1.sources.columns.lock import locked
from staging_tf1.sources.columns.manifest import Manifest, manifest_in
from staging_tf1.sources.columns.records import RecordWriter
from staging_tf1.sources.columns.snapshot import Snapshot, has_replaced

__all__ = ["Build", "built"]

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
        if has_replaced(build.path):
            # A builder died before it removed the old cache. If the folder is not writable, the old cache stays.
            with contextlib.suppress(RecordFileError, OSError), locked(build.path):
                folder.put_back(build.path)
        return
    with folder.writing(build.owner, build.path):
        os.makedirs(os.path.dirname(build.path) or os.curdir, exist_ok=True)
    with locked(build.path) as report:
        with folder.writing(build.owner, build.path):
            folder.put_back(build.path)
        # Another process may have built it meanwhile.
        if _is_missing(build, log=True) and not _adopted(build):
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


def _adopted(build: Build) -> bool:
    """Use the cache of a builder that died after finishing it, but before moving it."""
    with contextlib.suppress(RecordFileError):
        manifest = manifest_in(Snapshot(folder.building_folder(build.path)))
        if isinstance(manifest, Manifest) and manifest.key == build.key:
            with folder.writing(build.owner, build.path):
                folder.move_built(build.path)
            return True
    return False


class _Building:
    """One attempt to build a cache."""

    def __init__(self, build: Build, report: Callable[[str], None]) -> None:
        self._build, self._report = build, report
        self._position: int | None = 0
        self._reported = self._saved = time.monotonic()

    def run(self) -> None:
        build = self._build
        # Checked now, not after hours of building.
        folder.check_only_cache(build.path)
        saved = folder.saved_progress(build.path, build.key) if build.data.has_random_access else None
        building = folder.building_folder(build.path)
        with folder.writing(build.owner, build.path):
            if saved is None:
                folder.remove_remains(build.path)
                os.mkdir(building)
            else:
                self._position = saved["position"]
                logging.warning(
                    "continuing the cache %s after %d records that an earlier run stored; if the code has changed "
                    "since, run staging-tf1 cache remove %s",
                    build.path,
                    saved["records"]["num_records"],
                    build.path,
                )
            self._writer = RecordWriter(building, build.owner, None if saved is None else saved["records"])
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
        progress = {"key": self._build.key, "position": self._position, "records": self._writer.progress()}
        folder.save_progress(self._build.path, progress)

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
