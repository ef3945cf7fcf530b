"""The standard streams of the commands: pipes without a reader, full disks, and text that an encoding lacks."""

from __future__ import annotations

import codecs
import errno
import io
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1.cli.arguments import complain

__all__ = ["with_streams"]

_ESCAPE = "staging_tf1.escape"
# The exit code that a shell gives to a program that SIGPIPE has ended.
_NO_READER = 128 + getattr(signal, "SIGPIPE", 13)


class _LostOutput(BaseException):
    """A stream cannot be written. Not an OSError: the commands and argparse would take it for one of their files."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


class _Descriptor(io.FileIO):
    """A standard stream. Its first error is raised as `_LostOutput`, and later output is dropped."""

    _lost = False

    def write(self, data: Any) -> int:
        if not self._lost:
            try:
                return super().write(data)
            except OSError as error:
                self._lost = True
                raise _LostOutput(error) from error
        return memoryview(data).nbytes


def with_streams(prog: str, command: Callable[[], int]) -> int:
    """Run a command and return its exit code, whatever becomes of stdout and stderr.

    If the reader of its output is gone, it ends quietly with the exit code of SIGPIPE, as `cat file | head` does. Any
    other write error is reported in one line, and the exit code is 1. Text that the encoding of a stream lacks is
    escaped.
    """
    with _replaced("stdout"), _replaced("stderr"):
        try:
            try:
                return command()
            finally:
                # One that is closed from the start is None.
                for stream in filter(None, (sys.stdout, sys.stderr)):
                    stream.flush()
        except _LostOutput as lost:
            if lost.error.errno == errno.EPIPE:
                return _NO_READER
            complain(prog, f"the output cannot be written: {lost.error.strerror}")
            return 1


@contextmanager
def _replaced(name: str) -> Iterator[None]:
    before = getattr(sys, name)
    try:
        descriptor = before.fileno()
    except (AttributeError, OSError, ValueError):  # not a stream of the system
        yield
        return
    before.flush()
    codecs.register_error(_ESCAPE, _escaped)
    raw = _Descriptor(descriptor, "w", closefd=False)
    stream = io.TextIOWrapper(
        raw if before.write_through else io.BufferedWriter(raw),  # as `python -u` does
        encoding=before.encoding,
        errors=_ESCAPE,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    setattr(sys, name, stream)
    try:
        yield
    finally:
        if getattr(sys, name) is stream:
            setattr(sys, name, before)
        stream.detach().flush()


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    r"""Write the bytes of a file name that Python could not decode as they are, and anything else as \xfc."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError:
        return codecs.lookup_error("backslashreplace")(error)
