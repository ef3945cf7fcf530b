"""The process that removes TensorFlow's start-up noise from what another process writes to its stderr.

It reads stdin, and writes everything but the noise to stderr. It is a process and not a thread, because a thread would
end with a process that crashes, and the last output of that process would be lost. It imports nothing of the package,
so it starts in 20 ms.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys

# Written to stdin after the text of one period. The filter answers with one byte on stdout, when all of it is written.
END_OF_PERIOD = b"\0staging-tf1: end of period\0\n"
# How long an incomplete line is held back.
_HOLD_SECS = 0.05

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
    """Return whole lines without those of TensorFlow's log that are noise.

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


class Filter:
    """Forwards what `feed` is given, without the noise.

    Args:
      write: gets the rest.
      end_of_period: called at each `END_OF_PERIOD`, after everything before it was written.
    """

    def __init__(self, write: object, end_of_period: object) -> None:
        self._write, self._end_of_period = write, end_of_period
        # The beginning of an incomplete line.
        self.held = b""

    def feed(self, chunk: bytes) -> None:
        """Forward the lines that `chunk` completes."""
        *periods, rest = (self.held + chunk).split(END_OF_PERIOD)
        for period in periods:
            self._forward(period)
            self._end_of_period()  # type: ignore[operator]
        # A progress bar returns to the start of its line instead of ending it.
        whole = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        self.held = rest[whole:]
        self._forward(rest[:whole])

    def flush(self) -> None:
        """Forward the incomplete line."""
        if not END_OF_PERIOD.startswith(self.held[self.held.find(b"\0") :] or b"-"):
            self._forward(self.held)
            self.held = b""

    def _forward(self, text: bytes) -> None:
        if text:
            self._write(without_noise(text))  # type: ignore[operator]


def main() -> None:
    """Filter stdin until all processes that write to it have ended."""
    # Whatever ends the other process, its last output is forwarded.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        # The other process has no child that it did not start: a program that waits for any child would find it.
        os._exit(0)
    lines = Filter(_write_all, lambda: os.write(1, b"."))
    while True:
        if not select.select([0], [], [], _HOLD_SECS if lines.held else None)[0]:
            lines.flush()
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            break
        lines.feed(chunk)
    _write_all(without_noise(lines.held))


def _write_all(text: bytes) -> None:
    try:
        while text:
            text = text[os.write(2, text) :]
    except OSError:
        # Nobody reads it. The other process must not wait for a full pipe.
        return


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
