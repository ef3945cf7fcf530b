"""Checks of arguments, in the same words for every public function: who, the argument, what it got, what it wants.

Each check takes the caller's name (`what`), the argument's name and its value, and returns the value as the kind that
the caller goes on with. The checks run before an op is made, memory is taken or a thread is started.
"""

from __future__ import annotations

import errno
import math
import numbers
import operator
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# Elements of an area of staged(): each has a place in a queue that is filled at the start, 160 bytes a place.
MOST_STAGED = 2**20
# Records or batches of a CustomRunner's queue: a RandomShuffleQueue reserves 32 bytes for each and each component.
MOST_QUEUED = 2**24
# Threads of one feed, each with a stack of its own.
MOST_THREADS = 1024
# 31 years. Longer waits overflow what some systems wait with.
MOST_SECS = 10**9

# What TensorFlow takes for a scope at the root of a graph, and within another scope.
_SCOPE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_INNER_SCOPE = re.compile(r"[A-Za-z0-9_.\\/>-]*")
_FILE_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120
_short.maxlong = 60
_short.maxdict = _short.maxlist = _short.maxtuple = 8


def shown(value: Any) -> str:
    """`value` as messages show it: on one line, cut short, whatever it is.

    >>> shown(1.5), shown("x" * 1000) == shown("x" * 2000), len(shown("x" * 1000))
    ('1.5', True, 120)
    """
    try:
        text = " ".join(_short.repr(value).split())
    except Exception:  # an int of more digits than Python prints, or a __repr__ that raises
        text = f"<{type(value).__name__}>"
    # A lone surrogate could not be printed.
    printable = text.encode(errors="backslashreplace")
    return printable.decode()


def refuse(what: str, argument: str, value: Any, wanted: str, kind: type[Exception] = TypeError) -> NoReturn:
    """Raises `kind` in the words that all checks share."""
    raise kind(f"{what} got {argument}={shown(value)}, wanted {wanted}.")


def whole(what: str, argument: str, value: Any, least: int, most: int, meaning: str = "") -> int:
    """A whole number from `least` to `most`, as an int; numpy integers count, bools do not.

    Args:
      what: who was called, for messages.
      argument: its name.
      value: what it got.
      least, most: the range, both included.
      meaning: what the number is, for messages: "bytes; 0 is no limit".

    Raises:
      TypeError: not a whole number.
      ValueError: out of range.

    >>> whole("staged()", "capacity", 0, 1, 8)
    Traceback (most recent call last):
    ...
    ValueError: staged() got capacity=0, wanted a whole number from 1 to 8.
    """
    wanted = f"a whole number {in_range(least, most)}{f' ({meaning})' if meaning else ''}"
    number = as_int(value)
    if number is None:
        refuse(what, argument, value, wanted)
    if not least <= number <= most:
        refuse(what, argument, value, wanted, ValueError)
    return number


def as_int(value: Any) -> int | None:
    """`value` as an int if it is a whole number, else None; a bool is none."""
    if _is_bool(value):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _is_bool(value: Any) -> bool:
    """Python's or numpy's; by name, because programs that `staging-tf1 run` starts must import numpy themselves."""
    kind = type(value)
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def in_range(least: int, most: int) -> str:
    """A range in words.

    >>> in_range(1, 256), in_range(0, 2**63 - 1)
    ('from 1 to 256', 'from 0 to 2**63 - 1')
    """
    return f"from {_bound(least)} to {_bound(most)}"


def _bound(number: int) -> str:
    return {INT64_MAX: "2**63 - 1", -INT64_MAX - 1: "-2**63"}.get(number, str(number))


def index_below(what: str, index: Any, count: int | None, argument: str = "index") -> int:
    """The number of a batch, from 0 to below `count`; None is without end.

    Raises:
      TypeError: not a whole number.
      IndexError: out of range.

    >>> index_below("ArraySource", 5, 5)
    Traceback (most recent call last):
    ...
    IndexError: ArraySource: batch 5 is out of range (0 to 4).
    """
    number = as_int(index)
    if number is None:
        refuse(what, argument, index, "a whole number: the number of a batch, counted from 0")
    most = INT64_MAX if count is None else count - 1
    if not 0 <= number <= most:
        raise IndexError(f"{what}: batch {shown(number)} is out of range (0 to {_bound(most)}).")
    return number


def flag(what: str, argument: str, value: Any) -> bool:
    """True or False, Python's or numpy's; 1 or 0, which programs take from their command lines.

    Raises:
      TypeError: something else, which Python would take for True more often than it is meant.
    """
    if not _is_bool(value) and as_int(value) not in (0, 1):
        refuse(what, argument, value, "True or False")
    return bool(value)


def seconds(what: str, argument: str, value: Any) -> float:
    """A finite number of seconds, from 0 to `MOST_SECS`, as a float.

    Raises:
      TypeError: no number.
      ValueError: negative, NaN or too large.
    """
    wanted = f"a finite number of seconds, {in_range(0, MOST_SECS)}"
    if _is_bool(value) or not isinstance(value, numbers.Real):
        refuse(what, argument, value, wanted)
    try:
        secs = float(value)
    except OverflowError:
        secs = math.inf
    if not 0 <= secs <= MOST_SECS:
        refuse(what, argument, value, wanted, ValueError)
    return secs


def shard(what: str, value: Any, records: int) -> tuple[int, int]:
    """A pair (index, count) with 0 <= index < count <= `records`; None is (0, 1).

    Raises:
      TypeError: no pair of integers.
      ValueError: the index is out of range, or the shard would have no record.
    """
    if value is None:
        return 0, 1
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        refuse(what, "shard", value, "a pair (index, count), as in shard=(0, 4)")
    count = whole(what, "shard count", value[1], 1, INT64_MAX, "shards")
    index = whole(what, "shard index", value[0], 0, count - 1, f"of {count} shard{'s' if count > 1 else ''}")
    if index >= records:
        raise ValueError(
            f"{what} got shard=({index}, {count}), which would be empty: there are {records} records for {count} "
            f"shards. Use at most {records} shards."
        )
    return index, count


def choice(what: str, argument: str, value: Any, choices: Sequence[str]) -> str:
    """One of several words.

    Raises:
      TypeError: no string.
      ValueError: another word.
    """
    wanted = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
    if not isinstance(value, str):
        refuse(what, argument, value, wanted)
    if value not in choices:
        refuse(what, argument, value, wanted, ValueError)
    return value


def function(what: str, argument: str, value: Any, wanted: str) -> Any:
    """Something that can be called.

    Raises:
      TypeError: it cannot.
    """
    if not callable(value):
        refuse(what, argument, value, wanted)
    return value


def having(what: str, argument: str, value: Any, attributes: Sequence[str], wanted: str) -> Any:
    """Something with the attributes that the caller uses: sessions and coordinators come wrapped.

    Raises:
      TypeError: one of them is not there.
    """
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        refuse(what, argument, value, wanted)
    return value


def op_name(what: str, value: Any, *, in_scope: bool = False) -> str | None:
    """None, or what can stand before the names of ops; `in_scope` if it may be made within another scope.

    Raises:
      TypeError, ValueError: neither.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        refuse(what, "name", value, "a string")
    if not (_INNER_SCOPE if in_scope else _SCOPE).fullmatch(value):
        refuse(what, "name", value, "a name that TensorFlow takes for an op, such as 'train'", ValueError)
    return value


def listed(what: str, argument: str, value: Any, wanted: str) -> list[Any]:
    """What an iterable holds; a string is none, nor is a dict.

    Raises:
      TypeError: something else.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        refuse(what, argument, value, wanted)
    try:
        return list(value)
    except TypeError:  # an array of no dimension
        refuse(what, argument, value, wanted)


def names(what: str, argument: str, value: Any, wanted: str) -> list[str]:
    """A list of strings; one string is none.

    Raises:
      TypeError: something else.
    """
    found = listed(what, argument, value, wanted)
    if not all(isinstance(each, str) for each in found):
        refuse(what, argument, value, wanted)
    return found


def path(what: str, argument: str, value: Any) -> str:
    """A path, as a string: a number would name an open file, and bytes no name that a message can show.

    Raises:
      TypeError: neither a string nor an `os.PathLike` of one.
      ValueError: no file can have that name.
    """
    wanted = "a path: a string or an os.PathLike"
    if not isinstance(value, (str, os.PathLike)):
        refuse(what, argument, value, wanted)
    name = os.fspath(value)
    if not isinstance(name, str):
        refuse(what, argument, value, wanted)
    try:
        possible = bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        refuse(what, argument, value, "a path that a file can have", ValueError)
    return name


def kind_of_file(name: str) -> str | None:
    """What stands at a path if it is no regular file: "a named pipe"; None for a regular file.

    Raises:
      OSError: nothing stands there, or it cannot be looked at.
    """
    mode = os.stat(name).st_mode
    if stat.S_ISREG(mode):
        return None
    return next((words for test, words in _FILE_KINDS if test(mode)), "no file")


def output_file(what: str, argument: str, value: Any) -> str:
    """A path that a regular file can be written to; what stands there is left as it is.

    A device would take no file, a named pipe would block, and both would be lost where a file replaces them.

    Raises:
      TypeError, ValueError: no path; or something else than a file stands there.
      OSError: the file cannot be written.
    """
    name = path(what, argument, value)
    try:
        kind = kind_of_file(name)
    except FileNotFoundError:
        kind = None
        folder = os.path.dirname(name) or os.curdir
        if not os.path.isdir(folder):
            raise _unwritable(what, argument, name, errno.ENOENT) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _unwritable(what, argument, name, errno.EACCES) from None
    except OSError as error:
        raise _unwritable(what, argument, name, error.errno or errno.EIO) from error
    else:
        if kind is None and not os.access(name, os.W_OK):
            raise _unwritable(what, argument, name, errno.EACCES)
    if kind is not None:
        raise ValueError(f"{what} got {argument}={shown(name)}, which is {kind}, wanted the path of a regular file.")
    return name


def folder(what: str, argument: str, value: Any) -> str:
    """The path of a folder, which need not be there yet, nor on this machine: "gs://bucket/run".

    Raises:
      TypeError, ValueError: no path; or something else than a folder stands there.
    """
    name = path(what, argument, value)
    if os.path.exists(name) and not os.path.isdir(name):
        kind = kind_of_file(name) or "a file"
        raise ValueError(f"{what} got {argument}={shown(name)}, which is {kind}, wanted the path of a folder.")
    return name


def _unwritable(what: str, argument: str, name: str, code: int) -> OSError:
    # OSError makes the class that goes with the number, FileNotFoundError for example.
    return OSError(code, f"{what} cannot write to {argument}={shown(name)}: {os.strerror(code)}", name)
