"""Which files a source reads, as a short text for fingerprints.

Files are named without their folders, so a moved folder makes no difference. If several files have the same name, their
names begin below the folder that they share.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

# The path of a file, and how many records it has.
ReadFile = tuple[str, int]

_FORM = re.compile(r"(\d+) files? (\w+) (\w+) (\w+)")


def file_list(files: Sequence[ReadFile]) -> str:
    """Return a text that differs if the names of the files, their numbers of records or their order differ.

    >>> file_list([("/data/a", 5), ("/data/b", 5)]) == file_list([("/moved/a", 5), ("/moved/b", 5)])
    True
    >>> changed_files(file_list([("a", 5), ("b", 5)]), file_list([("b", 5), ("a", 5)]))
    'the files are the same in another order: pass them sorted'
    """
    names = _names([path for path, _ in files])
    lines = [f"{name}\0{count}" for name, (_, count) in zip(names, files)]
    # Each digest covers more than the one before, so a message can say what differs.
    digests = map(_digest, (sorted(names), sorted(lines), lines))
    return f"{len(files)} file{'s' if len(files) != 1 else ''} {' '.join(digests)}"


def changed_files(saved: object, present: object) -> str | None:
    """Say how two results of `file_list` differ. None if one of them is something else."""
    before, now = (_FORM.fullmatch(text) if isinstance(text, str) else None for text in (saved, present))
    if before is None or now is None:
        return None
    if before[1] != now[1]:
        return f"the number of files was {before[1]}, is {now[1]}"
    if before[2] != now[2]:
        return "files have other names"
    if before[3] != now[3]:
        return "files have other numbers of records"
    return "the files are the same in another order: pass them sorted"


def _digest(texts: Iterable[str]) -> str:
    # File names may hold bytes that are no text.
    return hashlib.blake2b("\n".join(texts).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()


def _names(paths: list[str]) -> list[str]:
    names = [path.rpartition(os.sep)[2] for path in paths]
    different = set(paths)
    if len(set(names)) == len(different):
        return names
    times = Counter(path.rpartition(os.sep)[2] for path in different)
    full = {path: os.path.abspath(path) for path, name in zip(paths, names) if times[name] > 1}
    # All paths share what the first and the last in sorted order share.
    shared = len(os.path.commonpath([min(full.values()), max(full.values())]))
    return [(full[path][shared:].lstrip(os.sep) or name) if path in full else name for path, name in zip(paths, names)]
