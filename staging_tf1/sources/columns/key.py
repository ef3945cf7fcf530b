"""The key of a cache: what is known of its data without reading it. If it changes, the cache is out of date."""

from __future__ import annotations

import os
from typing import Any

from staging_tf1 import arguments
from staging_tf1.arguments import INT64_MAX, shown
from staging_tf1.errors import RecordFileError
from staging_tf1.sources.files.os_errors import cure_of
from staging_tf1.sources.files.record_paths import local_files

# Files that the message about a changed key lists.
_MOST_LISTED = 5


def version_key(version: Any) -> str | None:
    """Check `version` and return it as a string: a command line cannot tell 1 from "1"."""
    if version is None or isinstance(version, str):
        return version
    if arguments.as_int(version) is None:
        arguments.refuse("cached()", "version", version, "a string or a whole number")
    return str(arguments.whole("cached()", "version", version, -INT64_MAX, INT64_MAX))


def files_key(files: Any) -> dict[str, list[int]] | None:
    """Return the size and time of each file, by its path. Raises RecordFileError if one is missing."""
    if files is None:
        return None
    key = {}
    for path in local_files("cached()", files):
        try:
            status = os.stat(path)
        except OSError as error:
            cure = cure_of(error, "Leave it out of files.")
            raise RecordFileError(f"cached() cannot read {path!r}, one of files: {error.strerror}. {cure}") from error
        key[os.path.abspath(path)] = [status.st_size, status.st_mtime_ns]
    return key


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say what differs between two keys, item by item. Empty if nothing does.

    >>> changes({"num_records": 3, "version": "a"}, {"num_records": 4, "version": "a"})
    ['num_records: 3 in the cache, 4 now']
    """
    differences: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if name == "files":
            differences += _file_changes(old or {}, new or {})
        elif old != new:
            differences.append(f"{name}: {_shown(old)} in the cache, {_shown(new)} now")
    return differences


def _shown(value: Any) -> str:
    if isinstance(value, str):
        # A terminal cannot show control characters and lone surrogates.
        return value if value.isprintable() else repr(value)
    return "none" if value is None else shown(value)


def _file_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for path in dict.fromkeys([*old, *new]):
        if path not in new:
            lines.append(f"file {path!r}: not listed any more")
        elif path not in old:
            lines.append(f"file {path!r}: new")
        elif old[path][0] != new[path][0]:
            lines.append(f"file {path!r}: {old[path][0]} bytes when the cache was built, {new[path][0]} now")
        elif old[path] != new[path]:
            lines.append(f"file {path!r}: modified after the cache was built")
    more = len(lines) - _MOST_LISTED
    return [*lines[:_MOST_LISTED], f"{more} more files"] if more > 0 else lines
