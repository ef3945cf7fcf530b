"""Argument checks. Every public function reports a bad argument in the same words.

A message names the caller and the argument, what it got, and what was expected. Each check takes the caller's name
(`caller`), the argument's name and its value, and returns the value in the type that the caller uses. Checks run before
any op is created, memory allocated or thread started.
"""

from __future__ import annotations

import difflib
import errno
import math
import numbers
import operator
import os
import re
import reprlib
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# Elements of a staged() area. Each takes a slot of 160 bytes in a queue that is filled at the start.
MOST_STAGED = 2**20
# Records or batches in a CustomRunner's queue. A RandomShuffleQueue reserves 32 bytes for each, per component.
MOST_QUEUED = 2**24
# Threads of one feed. Each has its own stack.
MOST_THREADS = 1024
# The value of tf.data.AUTOTUNE, and how messages show it.
AUTOTUNE = -1
NAMED_AUTOTUNE = f"{AUTOTUNE} (AUTOTUNE)"
# 31 years. Some systems overflow on longer waits.
MOST_SECS = 10**9
STALL_ENVIRONMENT = "STAGING_TF1_STALL_SECS"
CACHE_ENVIRONMENT = "STAGING_TF1_CACHE"
# Longer than a step takes, even the first one, and shorter than a user's patience.
_STALL_SECS = 30.0

# Scope names that TensorFlow accepts at the root of a graph, and inside another scope.
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
    """Format any value for a message: on one line, truncated.

    >>> shown(1.5), shown("x" * 1000) == shown("x" * 2000), len(shown("x" * 1000))
    ('1.5', True, 120)
    """
    try:
        text = " ".join(_short.repr(value).split())
    except Exception:  # an int with more digits than Python prints, or a __repr__ that raises
        text = f"<{type(value).__name__}>"
    # Lone surrogates cannot be printed.
    printable = text.encode(errors="backslashreplace")
    return printable.decode()


def refuse(caller: str, argument: str, value: Any, expected: str, kind: type[Exception] = TypeError) -> NoReturn:
    """Raise `kind` with the message that all checks share."""
    raise kind(f"{caller} got {argument}={shown(value)}, expected {expected}.")


def instance(caller: str, argument: str, value: Any, kind: Any, expected: str) -> Any:
    """Check that a value is of a class, or of one of several."""
    if not isinstance(value, kind):
        refuse(caller, argument, value, expected)
    return value


class _Unset:
    """Marks an argument that was not passed. Not None, which a check refuses."""

    def __repr__(self) -> str:
        return "<not passed>"


UNSET: Any = _Unset()


def whole(caller: str, argument: str, value: Any, least: int, most: int, meaning: str = "") -> int:
    """Check an integer in the inclusive range, not a bool. `meaning` is for messages: "bytes; 0 is no limit".

    >>> whole("staged()", "capacity", 0, 1, 8)
    Traceback (most recent call last):
    ...
    ValueError: staged() got capacity=0, expected a whole number from 1 to 8.
    """
    expected = f"a whole number {in_range(least, most)}{f' ({meaning})' if meaning else ''}"
    number = as_int(value)
    if number is None:
        refuse(caller, argument, value, expected)
    if not least <= number <= most:
        refuse(caller, argument, value, expected, ValueError)
    return number


def as_int(value: Any) -> int | None:
    """Convert an integer of any type to int. None for bools and everything else."""
    if _is_bool(value):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _is_bool(value: Any) -> bool:
    """Whether `value` is a Python or numpy bool.

    Compares names: programs started by `staging-tf1 run` must be the first to import numpy.
    """
    kind = type(value)
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def in_range(least: int, most: int) -> str:
    """Format an inclusive range for a message.

    >>> in_range(1, 256), in_range(0, 2**63 - 1)
    ('from 1 to 256', 'from 0 to 2**63 - 1')
    """
    return f"from {_bound(least)} to {_bound(most)}"


def _bound(number: int) -> str:
    return {INT64_MAX: "2**63 - 1", -INT64_MAX - 1: "-2**63"}.get(number, str(number))


def index_below(caller: str, index: Any, count: int | None) -> int:
    """Check a batch index. A `count` of None is endless. Raises IndexError if out of range.

    >>> index_below("ArraySource", 5, 5)
    Traceback (most recent call last):
    ...
    IndexError: ArraySource: batch 5 is out of range (0 to 4).
    """
    number = as_int(index)
    if number is None:
        refuse(caller, "index", index, "a whole number: the index of a batch, counted from 0")
    most = INT64_MAX if count is None else count - 1
    if not 0 <= number <= most:
        raise IndexError(f"{caller}: batch {shown(number)} is out of range (0 to {_bound(most)}).")
    return number


def batch_start(caller: str, start: Any) -> int:
    """Check the index of the batch to start from. It may be beyond the last batch."""
    return whole(caller, "start", start, 0, INT64_MAX, "the index of a batch")


def seed(caller: str, value: Any) -> int:
    """Check the seed of a source: from 0 to 2**63 - 1."""
    return whole(caller, "seed", value, 0, INT64_MAX)


def flag(caller: str, argument: str, value: Any) -> bool:
    """Check a bool, Python's or numpy's, or 1 and 0, which programs read from their command lines.

    All other values raise TypeError: most are true in Python, and few are meant that way.
    """
    if not _is_bool(value) and as_int(value) not in (0, 1):
        refuse(caller, argument, value, "True or False")
    return bool(value)


def as_float(number: Any) -> float:
    """Convert a real number to float. One that is too large is infinite.

    >>> as_float(10**400), as_float(-(10**400))
    (inf, -inf)
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def seconds(caller: str, argument: str, value: Any) -> float:
    """Check a duration: a finite number of seconds from 0 to `MOST_SECS`."""
    expected = f"a finite number of seconds, {in_range(0, MOST_SECS)}"
    if _is_bool(value) or not isinstance(value, numbers.Real):
        refuse(caller, argument, value, expected)
    secs = as_float(value)
    if not 0 <= secs <= MOST_SECS:
        refuse(caller, argument, value, expected, ValueError)
    return secs


_Number = TypeVar("_Number", int, float)


def number_in(text: str, kind: type[_Number], least: int, most: int) -> _Number | None:
    """Convert text from a command line or the environment to a number in the inclusive range, or to None.

    >>> number_in("32", int, 1, 256), number_in("0", int, 1, 256), number_in("nan", float, 0, 60)
    (32, None, None)
    """
    try:
        number = kind(text)
    except ValueError:
        return None
    return number if least <= number <= most else None


def stall_secs_or_default(caller: str, stall_secs: float | None, default: float = _STALL_SECS) -> float:
    """Return the seconds after which a step counts as stalled: the argument, the environment's, or else the default.

    0 is never.

    Raises:
      TypeError, ValueError: not a number of seconds, or out of range.
    """
    if stall_secs is not None:
        return seconds(caller, "stall_secs", stall_secs)
    value = os.environ.get(STALL_ENVIRONMENT)
    if not value:
        return default
    secs = number_in(value, float, 0, MOST_SECS)
    if secs is None:
        raise ValueError(
            f"{STALL_ENVIRONMENT} is {shown(value)}, expected a number of seconds {in_range(0, MOST_SECS)}; 0 disables "
            f"the stall report."
        )
    return secs


def shard(caller: str, value: Any, records: int) -> tuple[int, int]:
    """Check a shard: a pair (index, count) with index < count and index < `records`. None is (0, 1)."""
    if value is None:
        return 0, 1
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        refuse(caller, "shard", value, "a pair (index, count), as in shard=(0, 4)")
    first, second = map(as_int, value)
    hint = ""
    if first is not None and second is not None and 0 <= second < first <= INT64_MAX:
        hint = f"; the index comes first, other than in tf.data: shard({second}, {first})"
    count = whole(caller, "shard count", value[1], 1, INT64_MAX, f"shards{hint}")
    shards = f"of {count} shard{'s' if count > 1 else ''}"
    index = whole(caller, "shard index", value[0], 0, count - 1, shards + hint)
    if index >= records:
        raise ValueError(
            f"{caller} got shard=({index}, {count}), which would be empty: {records} records are divided into {count} "
            f"shards. Use at most {records} shards."
        )
    return index, count


def choice(caller: str, argument: str, value: Any, choices: Sequence[str]) -> str:
    """Check a string against a list of choices."""
    expected = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
    text: str = instance(caller, argument, value, str, expected)
    if text not in choices:
        refuse(caller, argument, text, expected, ValueError)
    return text


def function(caller: str, argument: str, value: Any, expected: str) -> Any:
    """Check that a value is callable."""
    if not callable(value):
        refuse(caller, argument, value, expected)
    return value


def having(caller: str, argument: str, value: Any, attributes: Sequence[str], expected: str) -> Any:
    """Check that an object has the given attributes, not its class: sessions are often wrapped."""
    if isinstance(value, type) or not all(hasattr(value, attribute) for attribute in attributes):
        refuse(caller, argument, value, expected)
    return value


def op_name(caller: str, value: Any, *, in_scope: bool = False) -> str | None:
    """Check a prefix for op names, or None. `in_scope` accepts names that are valid only inside another scope."""
    if value is None:
        return None
    name: str = instance(caller, "name", value, str, "a string")
    if not (_INNER_SCOPE if in_scope else _SCOPE).fullmatch(name):
        refuse(caller, "name", name, "a valid TensorFlow op name, such as 'train'", ValueError)
    return name


def listed(caller: str, argument: str, value: Any, expected: str) -> list[Any]:
    """Check an iterable and return its elements. Rejects strings and dicts."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        refuse(caller, argument, value, expected)
    try:
        return list(value)
    except TypeError:  # a 0-d array
        refuse(caller, argument, value, expected)


def names(caller: str, argument: str, value: Any, expected: str) -> list[str]:
    """Check a list of strings. Rejects a single string."""
    strings = listed(caller, argument, value, expected)
    if not all(isinstance(string, str) for string in strings):
        refuse(caller, argument, value, expected)
    return strings


def path(caller: str, argument: str, value: Any, *, schemes: Collection[str] | None = ()) -> str:
    """Check a path and return it as a string.

    Rejects integers, which `open` takes for file descriptors, and bytes, which messages cannot show. Rejects a scheme,
    too: `open` would take it for a folder "s3:". `schemes` are those of TensorFlow, for a path that only it opens; None
    takes any, for a URL that fsspec opens.
    """
    expected = "a path: a string or an os.PathLike"
    name = os.fspath(instance(caller, argument, value, (str, os.PathLike), expected))
    if not isinstance(name, str):
        refuse(caller, argument, value, expected)
    try:
        possible = bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        refuse(caller, argument, value, "a valid file path", ValueError)
    if scheme := scheme_of(name):
        _check_scheme(caller, argument, name, scheme, schemes)
    return name


def _check_scheme(caller: str, argument: str, name: str, scheme: str, schemes: Collection[str] | None) -> None:
    if schemes is not None and not schemes:
        cure = "Copy the files here, or mount the storage as a folder"
        refuse(caller, argument, name, f"a path of this machine, without '{scheme}'. {cure}", ValueError)
    known = sorted(f"{each}:" for each in schemes or () if each)
    if schemes is not None and scheme not in known:
        cure = f"Import the package that adds '{scheme}' to TensorFlow first, or mount the storage as a folder"
        expected = f"a path without a scheme, or with one that this TensorFlow opens ({', '.join(known)}). {cure}"
        refuse(caller, argument, name, expected, ValueError)
    if not name.startswith(f"{scheme}//"):  # TensorFlow and fsspec would write to a folder "gs:"
        expected = f"two slashes after '{scheme}'. Pass a string, because pathlib removes one"
        refuse(caller, argument, name, expected, ValueError)


def scheme_of(path: str) -> str:
    """Return the scheme of a path that `open` cannot read; "" for a path of this machine.

    "s3:/bucket" has one, too: pathlib makes it of "s3://bucket". "C:/data" has none.

    >>> scheme_of("s3://bucket/x"), scheme_of("simplecache::s3://bucket"), scheme_of("C:/data")
    ('s3:', 'simplecache::s3:', '')
    """
    found = re.match(r"(?:[A-Za-z][\w+.-]+::?)+(?=/)", path)
    return found[0] if found else ""


def kind_of_file(name: str) -> str | None:
    """Name the kind of a file that is not regular: "a named pipe". None for a regular file."""
    mode = os.stat(name).st_mode
    if stat.S_ISREG(mode):
        return None
    return next((words for test, words in _FILE_KINDS if test(mode)), "not a file")


def output_file(caller: str, argument: str, value: Any) -> str:
    """Check that a regular file can be written to a path. Does not touch what is there.

    Raises ValueError for devices and named pipes: a pipe would block, and replacing either with a file would remove it.
    Raises OSError if the file cannot be written.
    """
    name = path(caller, argument, value)
    try:
        kind = kind_of_file(name)
    except FileNotFoundError:
        kind = None
        folder = os.path.dirname(name) or os.curdir
        if not os.path.isdir(folder):
            raise _unwritable(caller, argument, name, errno.ENOENT) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _unwritable(caller, argument, name, errno.EACCES) from None
    except OSError as error:
        raise _unwritable(caller, argument, name, error.errno or errno.EIO) from error
    else:
        if kind is None and not os.access(name, os.W_OK):
            raise _unwritable(caller, argument, name, errno.EACCES)
    if kind is not None:
        raise ValueError(
            f"{caller} got {argument}={shown(name)}, which is {kind}, expected the path of a regular file."
        )
    return name


def folder(caller: str, argument: str, value: Any, schemes: Collection[str]) -> str:
    """Check the path of a folder. It need not exist, and may have one of the schemes: "gs://bucket/run"."""
    name = path(caller, argument, value, schemes=schemes)
    if os.path.exists(name) and not os.path.isdir(name):
        kind = kind_of_file(name) or "a file"
        raise ValueError(f"{caller} got {argument}={shown(name)}, which is {kind}, expected the path of a folder.")
    return name


def cache_dir() -> str:
    """Return the folder for what can be made or fetched again: $STAGING_TF1_CACHE, or one in the user's cache folder.

    Raises ValueError if the environment does not name a folder of this machine.
    """
    chosen = os.environ.get(CACHE_ENVIRONMENT)
    if chosen:
        return os.path.abspath(path("the environment", CACHE_ENVIRONMENT, chosen))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "staging_tf1")


def _unwritable(caller: str, argument: str, name: str, code: int) -> OSError:
    # OSError picks the subclass that matches the number, such as FileNotFoundError.
    return OSError(code, f"{caller} cannot write to {argument}={shown(name)}: {os.strerror(code)}", name)


def close_to(name: str, names: Iterable[str]) -> str:
    """Return a hint at the name that was meant, for the end of a message; "" if none is close.

    >>> close_to("StagingAera", ["StagingArea", "staged"])
    " Did you mean 'StagingArea'?"
    """
    close = difflib.get_close_matches(name, list(names), 1)
    return f" Did you mean {close[0]!r}?" if close else ""
