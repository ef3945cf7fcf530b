"""Resolves the paths and globs of record files."""

from __future__ import annotations

import glob
import os
from typing import Any

from staging_tf1 import arguments
from staging_tf1.errors import RecordFileError, StagingWarning, warn
from staging_tf1.sources.files.os_errors import check_regular
from staging_tf1.sources.files.tfrecord_index import INDEX_SUFFIX, UNPACKED_SUFFIX

__all__ = ["matching_files"]


def matching_files(owner: str, files: Any) -> list[str]:
    """Resolve a path or glob, or several. The matches of a glob are sorted by name.

    A path that is listed twice is returned twice. A file that a glob matches is returned once, where it comes first,
    because overlapping globs are usually a mistake. Raises RecordFileError if a path does not exist or is not a regular
    file, or if a glob matches nothing.
    """
    paths: list[str] = []
    seen: set[str] = set()
    globbed: set[str] = set()
    again: list[str] = []
    for pattern in _patterns(owner, files):
        listed = os.path.exists(pattern)
        for path in [pattern] if listed else _matches(pattern):
            absolute = os.path.abspath(path)
            if absolute in (globbed if listed else seen):
                again.append(path)
                continue
            paths.append(path)
            seen.add(absolute)
            if not listed:
                globbed.add(absolute)
    for path in dict.fromkeys(paths):
        check_regular(path)
    if again:
        _warn_of_repeats(owner, again)
    return paths


def _patterns(owner: str, files: Any) -> list[str]:
    if isinstance(files, (str, os.PathLike)):
        return [arguments.path(owner, "files", files)]
    several = arguments.listed(owner, "files", files, "a path or glob, or several: strings or os.PathLikes")
    patterns = [arguments.path(owner, "files", path) for path in several]
    if not patterns:
        raise RecordFileError(f"{owner} got an empty list of files, expected at least one path or glob.")
    return patterns


def _warn_of_repeats(owner: str, again: list[str]) -> None:
    others = f" and {len(again) - 1} more" if len(again) > 1 else ""
    warn(
        f"{owner}: the file {again[0]}{others} is matched by a glob and also listed or matched again; it is read once. "
        f"To read a file twice, list its path twice without a glob.",
        StagingWarning,
    )


def _matches(pattern: str) -> list[str]:
    """Return the files that match a glob, without the indexes next to them."""
    matches = sorted(glob.glob(pattern, recursive=True))
    kept = [path for path in matches if not path.endswith((INDEX_SUFFIX, UNPACKED_SUFFIX)) and os.path.isfile(path)]
    if not kept:
        raise RecordFileError(
            f"no file matches {pattern!r} (current folder: {os.getcwd()}). Check the path; globs support *, ? and **."
        )
    return kept
