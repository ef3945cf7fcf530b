"""What to do about an error of the system: the same advice wherever a source opens, reads or writes a file."""

from __future__ import annotations

import errno

__all__ = ["cure_of"]

_CURES = {
    errno.EMFILE: "Raise the limit of open files of this process: ulimit -n, or resource.setrlimit.",
    errno.ENFILE: "The system has too many open files: end other programs, or raise fs.file-max.",
    errno.EACCES: "Give this user read access to it, or choose another path.",
    errno.EPERM: "Give this user read access to it, or choose another path.",
}


def cure_of(error: OSError, otherwise: str) -> str:
    """Return the advice for an error while reading; `otherwise` if its cause is the file itself.

    >>> cure_of(OSError(errno.EMFILE, "Too many open files"), "Remove the file.")[:40]
    'Raise the limit of open files of this pr'
    """
    return _CURES.get(error.errno or 0, otherwise)
