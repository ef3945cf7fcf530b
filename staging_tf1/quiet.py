"""Imports TensorFlow fast for the commands, and hides its start-up log lines; errors still show."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.garbage import without_collections

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Holds the level that this package has set, so child processes can distinguish it from the user's choice.
_OWN_LEVEL = "STAGING_TF1_LOG_LEVEL"
_ERRORS = "2"
# Where there is an NVIDIA driver: Linux, and the Linux of Windows.
_DRIVERS = ("/proc/driver/nvidia", "/dev/dxg")

# A line of TensorFlow's C++ log: "2026-01-31 12:00:00.123456: E path/file.cc:12] text" up to TensorFlow 2.17, and
# "E0000 00:00:1769860800.123456    1234 file.cc:12] text" since, before the log is set up.
_LOG_LINE = re.compile(
    rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) |([IWEF])\d{4} [\d:.]+ +\d+ )[\w./+-]+:\d+\] ([^\r\n]*)(?:\n|$)"
)
# Harmless errors: TensorFlow built with CUDA logs them on every machine without a GPU, or at every start.
_HARMLESS = re.compile(rb"failed call to cuInit|Unable to register cu(?:DNN|FFT|BLAS) factory")
# Lines without the prefix of the log.
_HEADINGS = re.compile(
    rb"(?:WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|To enable the following instructions: [\w ,.]+, in other operations, rebuild TensorFlow with the appropriate "
    rb"compiler flags\.)(?:\n|$)"
)


def without_noise(text: bytes) -> bytes:
    """Return the text without those lines of TensorFlow's log that are noise.

    The noise is all lines of the levels INFO and WARNING, and two harmless errors. If TF_CPP_MIN_LOG_LEVEL is 2,
    TensorFlow leaves out INFO and WARNING itself, except for lines that it logs before it reads that variable. A
    progress bar may stand before such a line.

    >>> without_noise(b"mine\\nI0000 00:00:1795391804.897138   31566 port.cc:153] oneDNN custom operations are on.\\n")
    b'mine\\n'
    """
    return _HEADINGS.sub(b"", _LOG_LINE.sub(_unless_error, text))


def _unless_error(line: re.Match[bytes]) -> bytes:
    is_noise = (line[1] or line[2]) in b"IW" or _HARMLESS.search(line[3])
    return b"" if is_noise else line[0]


def import_quietly() -> None:
    """Import TensorFlow, unless that has happened."""
    if "tensorflow" in sys.modules:
        return
    with importing():
        from staging_tf1 import _tf  # noqa: F401
    find_devices()


@contextmanager
def importing() -> Iterator[None]:
    """Return a context in which to import TensorFlow. From then on TensorFlow logs errors only.

    Does nothing about the log if the user has chosen its level (TF_CPP_MIN_LOG_LEVEL).
    """
    if os.environ.get(_LEVEL) is None:
        os.environ[_LEVEL] = os.environ[_OWN_LEVEL] = _ERRORS
    # A search for garbage among a million new objects takes a fifth of the import.
    with without_collections(), _filtered():
        yield


def find_devices() -> None:
    """Let TensorFlow log now, while its log is filtered, that this machine has no GPU, if that is certain.

    Otherwise the first session logs it. With a driver it would be too early: a program may still choose its GPUs.
    """
    if any(map(os.path.exists, _DRIVERS)):
        return
    from staging_tf1._tf import list_physical_devices

    with _filtered():
        list_physical_devices()


@contextmanager
def _filtered() -> Iterator[None]:
    """Show at the end of the block what was written to stderr in it, without the noise; after an error, all of it."""
    if os.environ.get(_LEVEL) != os.environ.get(_OWN_LEVEL):
        yield
        return
    try:
        stderr, held = os.dup(2), tempfile.TemporaryFile()  # noqa: SIM115, the block below closes it
    except OSError:
        # stderr is closed, or there is no room: the program must run nevertheless, with the noise.
        yield
        return
    with held:
        os.dup2(held.fileno(), 2)
        is_over = False
        try:
            yield
            is_over = True
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            text = held.read()
            _write_all(without_noise(text) if is_over else text)


def _write_all(text: bytes) -> None:
    try:
        while text:
            text = text[os.write(2, text) :]
    except OSError:
        # The reader is gone.
        return
