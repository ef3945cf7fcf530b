"""Opens a cache for reading, also while another process builds it again."""

from __future__ import annotations

import os
import time

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.columns.component import Column
from staging_tf1.sources.columns.folder import has_replaced, opened
from staging_tf1.sources.columns.manifest import MANIFEST, Manifest

__all__ = ["mapped"]

# Between the two renames that replace a cache there is none, for less than a millisecond if the disk is not busy.
_TRIES, _WAIT_SECS = 20, 0.05


def mapped(path: str) -> tuple[Manifest, list[Column]]:
    """Map the files of the cache at `path`. All are of one cache, even if it is replaced meanwhile.

    Raises RecordFileError if there is no cache, or a file is missing or was changed.
    """
    for tries_left in reversed(range(_TRIES)):
        before = _manifest_bytes(path)
        try:
            manifest = opened(path)
            columns = [Column(path, component) for component in manifest.components]
            if _manifest_bytes(path) == before:
                return manifest, columns
        except RecordFileError:
            is_replaced = has_replaced(path) or _manifest_bytes(path) != before
            if not is_replaced or not tries_left:
                raise
        time.sleep(_WAIT_SECS)
    raise RecordFileError(
        f"the cache {path!r} was replaced each of the {_TRIES} times that it was opened. Do several programs build it "
        f"from different data? Give each of them its own path."
    )


def _manifest_bytes(path: str) -> bytes | None:
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            return file.read()
    except OSError:
        return None
