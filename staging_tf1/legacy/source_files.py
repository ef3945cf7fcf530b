"""Finds the Python files under the given paths, reads and writes their text, and reports those that it cannot."""

from __future__ import annotations

import ast
import io
import os
import re
import stat
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from staging_tf1.arguments import kind_of_file
from staging_tf1.replacing import replacing

_PRINT_STATEMENT = re.compile(r"^\s*print\s+[^\s(=.\[]|^\s*print\s*$|^\s*print\s*>>")
_OTHER_PYTHON_2 = re.compile(r"^\s*except\s+[\w.]+\s*,\s*\w+\s*:|^\s*exec\s+['\"\w]|^\s*raise\s+[\w.]+\s*,\s")
_PYTHON_2 = ": is Python 2 ("


class UnreadableError(Exception):
    """A file or path that cannot be processed; the message says why, and how to fix it."""


@dataclass(frozen=True)
class SourceFile:
    """The text of one Python file."""

    path: str
    text: str
    encoding: str


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, for messages.

    >>> counted(1, "file"), counted(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def find(paths: Iterable[str]) -> Iterator[str | UnreadableError]:
    """Yield the Python files at and below `paths`, each once, in order, and an error for each unusable path."""
    seen: set[str] = set()
    for path in paths:
        for entry in _below(path):
            if isinstance(entry, UnreadableError):
                yield entry
            elif (real := os.path.realpath(entry)) not in seen:
                seen.add(real)
                yield entry


def read(path: str) -> SourceFile:
    """Read one file, in the encoding that it declares.

    Raises UnreadableError if the file cannot be read, or is not text.
    """
    content = _content(path)
    if b"\0" in content:
        raise UnreadableError(f"{path}: is not Python source: it contains null bytes")
    try:
        encoding = _encoding(path, content)
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            f"{path}:{line}: is not {error.encoding}: byte {content[error.start]:#x}. Declare the encoding in the "
            "first line: # -*- coding: latin-1 -*-"
        ) from error
    return SourceFile(path, text, encoding)


def overwrite(path: str, content: bytes) -> None:
    """Replace the content of `path` atomically, keeping its permissions. A symbolic link is followed.

    A reader, or a crash, sees either the old text or the new one. Raises UnreadableError if the file or its folder
    cannot be written. The file is then unchanged.
    """
    real = os.path.realpath(path)
    if not os.access(real, os.W_OK):
        raise UnreadableError(f"{path}: is read-only; nothing was written")
    kind = kind_of_file(real)
    if kind is not None:  # replacing a device would remove it
        raise UnreadableError(f"{path}: is {kind}, not a regular file; nothing was written")
    try:
        with replacing(real, durable=True) as file:
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(real).st_mode))
            file.write(content)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be written: {error.strerror}; it is unchanged") from error


def create(path: str, content: bytes) -> None:
    """Write a file, which may already exist. Raises UnreadableError if it cannot be written."""
    if os.path.exists(path):
        overwrite(path, content)
        return
    try:
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be written: {error.strerror}") from error


def _content(path: str) -> bytes:
    try:
        kind = kind_of_file(path)
        if kind is not None:  # a named pipe would block
            raise UnreadableError(f"{path}: is {kind}, not a regular file")
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from error
    return content


def _encoding(path: str, content: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        if "unknown encoding" in str(error):
            message = f"{path}:1: {error}; correct the declaration in the first two lines"
            raise UnreadableError(message) from error
        return "utf-8"  # no encoding is declared, and the first lines are not UTF-8: decoding reports the line
    return encoding


def _below(path: str) -> Iterator[str | UnreadableError]:
    try:
        os.stat(path)
    except OSError as error:
        problem = "is a loop of symbolic links" if "symbolic" in str(error.strerror) else "does not exist"
        yield UnreadableError(f"{path}: {problem}")
        return
    if not os.path.isdir(path):
        yield path if path.endswith((".py", ".pyi")) else UnreadableError(f"{path}: is not a Python file (.py)")
        return
    any_found = False
    for entry in _walk(path, frozenset()):
        any_found = True
        yield entry
    if not any_found:
        yield UnreadableError(f"{path}: contains no Python files")


def _walk(folder: str, above: frozenset[str]) -> Iterator[str | UnreadableError]:
    real = os.path.realpath(folder)
    if real in above:
        yield UnreadableError(f"{folder}: is a symbolic link to a folder that contains it; skipped")
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield UnreadableError(f"{folder}: cannot be read: {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_symlink() and not os.path.exists(entry.path):
            if entry.name.endswith(".py"):
                yield UnreadableError(f"{entry.path}: is a broken symbolic link")
        elif entry.is_dir():
            yield from _walk(entry.path, above | {real})
        elif entry.name.endswith(".py"):
            yield entry.path


def parsed(source: SourceFile) -> ast.Module:
    """Return the syntax tree of a file.

    Raises UnreadableError if it is not Python of this version: it names Python 2, or else the error of the parser.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes, which are not this tool's business
        try:
            return ast.parse(source.text)
        except SyntaxError as error:
            raise UnreadableError(_why_invalid(source, error)) from error
        except (RecursionError, MemoryError) as error:
            raise UnreadableError(f"{source.path}: is too deeply nested to be read") from error


def why_python_2(path: str) -> str | None:
    """Return what `parsed` raises if a file is Python 2; None for any other file."""
    try:
        parsed(read(path))
    except UnreadableError as error:
        return str(error) if _PYTHON_2 in str(error) else None
    return None


def _why_invalid(source: SourceFile, error: SyntaxError) -> str:
    for number, line in enumerate(source.text.splitlines(), start=1):
        if _PRINT_STATEMENT.match(line):
            construct = "a print statement"
        elif _OTHER_PYTHON_2.match(line):
            construct = "syntax that Python 3 removed"
        else:
            continue
        return (
            f"{source.path}:{number}{_PYTHON_2}{construct}: {line.strip()[:40]!r}). Convert it first with "
            "2to3 -w (part of Python up to 3.12) or futurize (from the package 'future')"
        )
    return f"{source.path}:{error.lineno or 1}: is not valid Python: {error.msg}"
