"""Imports TensorFlow fast for the commands, and hides its start-up log lines; errors still show."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from staging_tf1.garbage import without_collections

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Holds the level that this package has set, so child processes can distinguish it from the user's choice.
_OWN_LEVEL = "STAGING_TF1_LOG_LEVEL"
# Errors that TensorFlow built with CUDA logs on every machine without a GPU, or at every start.
_KINDS = rb"(?:[IW]|E(?=[^\r\n]*(?:failed call to cuInit|Unable to register cu(?:DNN|FFT|BLAS) factory)))"
# "2026-01-31 12:00:00.123456: I path/file.cc:12] text" up to TensorFlow 2.17, and since, before the log is set up,
# "I0000 00:00:1769860800.123456    1234 file.cc:12] text". The last two have no such prefix.
_NOISE = re.compile(
    rb"(?:(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: %b|%b\d{4} [\d:.]+ +\d+) [\w./+-]+:\d+\] [^\r\n]*"
    rb"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|To enable the following instructions: [\w ,.]+, in other operations, rebuild TensorFlow with the appropriate "
    rb"compiler flags\.)(?:\n|$)" % (_KINDS, _KINDS)
)


def without_noise(text: bytes) -> bytes:
    """Return the text without TensorFlow's log lines of the levels INFO and WARNING, and without two harmless errors.

    TensorFlow leaves out most of them itself, but logs some before it reads TF_CPP_MIN_LOG_LEVEL. A progress bar may
    stand before such a line.

    >>> without_noise(b"mine\\nI0000 00:00:1795391804.897138   31566 port.cc:153] oneDNN custom operations are on.\\n")
    b'mine\\n'
    """
    return _NOISE.sub(b"", text)


def import_quietly() -> None:
    """Import TensorFlow, unless that has happened."""
    if "tensorflow" not in sys.modules:
        with importing():
            from staging_tf1 import _tf  # noqa: F401
        find_devices()


@contextmanager
def importing() -> Iterator[None]:
    """Return a context in which to import TensorFlow. It then logs errors only, unless the user has chosen a level."""
    if os.environ.get(_LEVEL) is None:
        os.environ[_LEVEL] = os.environ[_OWN_LEVEL] = "2"
    # A search for garbage among a million new objects takes a fifth of the import.
    with without_collections(), _filtered():
        yield


def find_devices() -> None:
    """Let TensorFlow log now, not in the first session, that this machine has no GPU, if it has no NVIDIA driver."""
    # With a driver it would be too early: a program may still choose its GPUs. The second is that of Linux on Windows.
    if not any(map(os.path.exists, ("/proc/driver/nvidia", "/dev/dxg"))):
        from staging_tf1._tf import list_physical_devices

        with _filtered():
            list_physical_devices()


@contextmanager
def _filtered() -> Iterator[None]:
    """Show at the end of the block what was written to stderr in it, without the noise; after an error, all of it."""
    held = None
    if os.environ.get(_LEVEL) == os.environ.get(_OWN_LEVEL):
        # If stderr is closed or the disk full, the program runs with the noise.
        with suppress(OSError):
            stderr, held = os.dup(2), tempfile.TemporaryFile()  # noqa: SIM115, closed below
    if held is None:
        yield
        return
    failed = True
    with held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            failed = False
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            text = held.read()
            # The reader may be gone.
            with suppress(OSError), os.fdopen(2, "wb", closefd=False) as terminal:
                terminal.write(text if failed else without_noise(text))
