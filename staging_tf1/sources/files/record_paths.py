"""Resolves the paths and globs of record files."""

from __future__ import annotations

import glob
import os
from typing import Any

from staging_tf1 import arguments
from staging_tf1.errors import RecordFileError, StagingWarning, warn
from staging_tf1.sources.files.os_errors import check_regular
from staging_tf1.sources.files.remote import RemoteFile, resolved
from staging_tf1.sources.files.store import TIMEOUT_SECS
from staging_tf1.sources.files.tfrecord_index import INDEX_SUFFIX, UNPACKED_SUFFIX


def matching_files(owner: str, files: Any, timeout_secs: float | None = TIMEOUT_SECS) -> list[str | RemoteFile]:
    """Resolve a path, URL or glob, or several. The matches of a glob are sorted by name.

    A path that is listed twice is returned twice. A file that a glob matches is returned once, where it comes first,
    because overlapping globs are usually a mistake. `timeout_secs` is for requests to the store of a URL. Raises
    RecordFileError if a path does not exist or is not a regular file, or if a glob matches nothing.
    """
    return _matching(owner, _patterns(owner, files, None), timeout_secs)


def local_files(owner: str, files: Any) -> list[str]:
    """Do what `matching_files` does, and refuse URLs."""
    return list(map(str, _matching(owner, _patterns(owner, files, ()))))


def _matching(owner: str, patterns: list[str], timeout_secs: float | None = TIMEOUT_SECS) -> list[str | RemoteFile]:
    paths: list[str | RemoteFile] = []
    seen: set[str] = set()
    globbed: set[str] = set()
    again: list[str] = []
    remote = resolved(owner, filter(arguments.scheme_of, patterns), timeout_secs)
    for pattern in patterns:
        listed, found = remote.get(pattern) or (os.path.exists(pattern), None)
        for path in [pattern] if listed and found is None else _matches(pattern, found):
            absolute = os.path.abspath(path) if isinstance(path, str) else path.url
            if absolute in (globbed if listed else seen):
                again.append(str(path))
                continue
            paths.append(path)
            seen.add(absolute)
            if not listed:
                globbed.add(absolute)
    for path in dict.fromkeys(paths):
        if isinstance(path, str):
            check_regular(path)
    if again:
        _warn_of_repeats(owner, again)
    return paths


def _patterns(owner: str, files: Any, schemes: tuple[str, ...] | None) -> list[str]:
    if isinstance(files, (str, os.PathLike)):
        return [arguments.path(owner, "files", files, schemes=schemes)]
    several = arguments.listed(owner, "files", files, "a path or glob, or several: strings or os.PathLikes")
    patterns = [arguments.path(owner, "files", path, schemes=schemes) for path in several]
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


def _matches(pattern: str, remote: list[RemoteFile] | None) -> list[str | RemoteFile]:
    """Return the files that match a glob, without the indexes next to them. `remote` are those of a URL."""
    matches: list[Any] = (
        remote if remote is not None else sorted(filter(os.path.isfile, glob.iglob(pattern, recursive=True)))
    )
    kept = [path for path in matches if not str(path).endswith((INDEX_SUFFIX, UNPACKED_SUFFIX))]
    if not kept:
        where = f" (current folder: {os.getcwd()})" if remote is None else ""
        raise RecordFileError(f"no file matches {pattern!r}{where}. Check the path; globs support *, ? and **.")
    return kept
