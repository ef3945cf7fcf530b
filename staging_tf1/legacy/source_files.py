"""Finds the Python files under the given paths, reads their text, and reports those that cannot be read."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from staging_tf1.arguments import kind_of_file

_PRINT_STATEMENT = re.compile(r"^\s*print\s+[^\s(=.\[]|^\s*print\s*$|^\s*print\s*>>")
_OTHER_PYTHON_2 = re.compile(r"^\s*except\s+[\w.]+\s*,\s*\w+\s*:|^\s*exec\s+['\"\w]|^\s*raise\s+[\w.]+\s*,\s")


class UnreadableError(Exception):
    """A file or path that cannot be processed; the message says why, and how to fix it."""


@dataclass(frozen=True)
class SourceFile:
    """The text of one Python file."""

    path: str
    text: str
    encoding: str


def find(paths: Iterable[str], exclude: Iterable[str] = ()) -> Iterator[str | UnreadableError]:
    """Yield the Python files at and below `paths`, each once, in order, and an error for each unusable path.

    `exclude` holds names of files and folders to skip.
    """
    seen: set[str] = set()
    left_out = frozenset(exclude)
    for path in paths:
        for found in _below(path, left_out):
            if isinstance(found, UnreadableError):
                yield found
            elif (real := os.path.realpath(found)) not in seen:
                seen.add(real)
                yield found


def read(path: str) -> SourceFile:
    """Read one file, in the encoding that it declares.

    Raises UnreadableError if the file cannot be read, or is not text.
    """
    try:
        kind = kind_of_file(path)
        if kind is not None:  # a named pipe would block
            raise UnreadableError(f"{path}: is {kind}, not a regular file")
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from error
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


def _encoding(path: str, content: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        if "unknown encoding" in str(error):
            message = f"{path}:1: {error}; correct the declaration in the first two lines"
            raise UnreadableError(message) from error
        return "utf-8"  # no encoding is declared, and the first lines are not UTF-8: decoding reports the line
    return encoding


def _below(path: str, left_out: frozenset[str]) -> Iterator[str | UnreadableError]:
    try:
        os.stat(path)
    except OSError as error:
        what = "is a loop of symbolic links" if "symbolic" in str(error.strerror) else "does not exist"
        yield UnreadableError(f"{path}: {what}")
        return
    if not os.path.isdir(path):
        yield path if path.endswith((".py", ".pyi")) else UnreadableError(f"{path}: is not a Python file (.py)")
        return
    any_found = False
    for found in _walk(path, left_out, frozenset()):
        any_found = True
        yield found
    if not any_found:
        yield UnreadableError(f"{path}: contains no Python files")


def _walk(folder: str, left_out: frozenset[str], above: frozenset[str]) -> Iterator[str | UnreadableError]:
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
        if entry.name in left_out or entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_symlink() and not os.path.exists(entry.path):
            if entry.name.endswith(".py"):
                yield UnreadableError(f"{entry.path}: is a broken symbolic link")
        elif entry.is_dir():
            yield from _walk(entry.path, left_out, above | {real})
        elif entry.name.endswith(".py"):
            yield entry.path


def why_invalid(source: SourceFile, otherwise: str) -> str:
    """Return the message for a file that is no valid Python: it names Python 2, or else the error of the parser.

    `otherwise` is the message of the tool's own parser, in case Python accepts the file.
    """
    path = source.path
    for number, line in enumerate(source.text.splitlines(), start=1):
        if _PRINT_STATEMENT.match(line):
            what = "a print statement"
        elif _OTHER_PYTHON_2.match(line):
            what = "syntax that Python 3 removed"
        else:
            continue
        return (
            f"{path}:{number}: is Python 2 ({what}: {line.strip()[:40]!r}). Convert it first with "
            "2to3 -w (part of Python up to 3.12) or futurize (from the package 'future')"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.text)
    except SyntaxError as plain:
        return f"{path}:{plain.lineno}: is not valid Python: {plain.msg}"
    return f"{path}{otherwise}"


def why_python_2(path: str) -> str | None:
    """Return the message of `why_invalid` if a file is Python 2; None for any other file."""
    try:
        source = read(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.text)
    except UnreadableError:
        return None
    except SyntaxError:
        said = why_invalid(source, "")
        return said if ": is Python 2 (" in said else None
    return None
