"""Which record files a user means."""

from __future__ import annotations

import glob
import os
from typing import Any

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.files.tfrecord_index import INDEX_SUFFIX, UNPACKED_SUFFIX

__all__ = ["matching_files"]


def matching_files(owner: str, files: Any) -> list[str]:
    """Paths from a path or glob, or several: those of a glob sorted by name, each file once.

    Raises:
      RecordFileError: nothing matches.
    """
    patterns = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    found: list[str] = []
    for pattern in (os.fspath(path) for path in patterns):
        matches = [pattern] if os.path.exists(pattern) else _matches(pattern)
        if not matches:
            raise RecordFileError(
                f"no file matches {pattern!r} (looked from {os.getcwd()}). Check the path; a glob may hold *, ? and **."
            )
        found += matches
    if not found:
        raise RecordFileError(f"{owner} got an empty list of files.")
    return list(dict.fromkeys(found))


def _matches(pattern: str) -> list[str]:
    """The files that a glob means: not the indexes that stand beside them."""
    found = sorted(glob.glob(pattern, recursive=True))
    return [path for path in found if not path.endswith((INDEX_SUFFIX, UNPACKED_SUFFIX)) and os.path.isfile(path)]
