"""What a worker process gets at its start: settings, and memory for its status."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import warnings
from typing import Any, NamedTuple, cast

from staging_tf1.workers.arena import mapped

__all__ = ["IDLE", "STARTING", "Setup", "Status", "occupy_standard_descriptors", "trace_signal"]

# The status of a worker that makes no batch.
IDLE, STARTING = -1, -2


def occupy_standard_descriptors() -> None:
    """Open /dev/null in place of each standard stream of this process that is closed.

    Otherwise the memory of a source or the socket of a worker gets its number, and TensorFlow's log lines go there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def trace_signal() -> int:
    """Return the signal that makes a worker write its stack. It is a real-time signal, which programs rarely use."""
    return signal.SIGRTMAX - 3


class Setup(NamedTuple):
    """The settings of one worker."""

    # "train:0", for messages.
    name: str
    # The source to read, among those that were shipped together.
    source_index: int
    nice: int
    cwd: str
    argv: list[str]
    warning_filters: list[Any]
    # The level of each logger that has one of its own; "" is the root.
    log_levels: dict[str, int]

    @classmethod
    def of_this_process(cls, name: str, source_index: int, nice: int) -> Setup:
        """Collect the settings for a worker of this process."""
        cwd = ""
        with contextlib.suppress(OSError):
            cwd = os.getcwd()
        levels = {"": logging.root.level}
        for logger, entry in list(logging.root.manager.loggerDict.items()):
            if isinstance(entry, logging.Logger) and entry.level:
                levels[logger] = entry.level
        # Those whose categories any process can import.
        filters = [entry for entry in warnings.filters if entry[2].__module__ in ("builtins", "staging_tf1.errors")]
        return cls(name, source_index, nice, cwd, sys.argv, filters, levels)

    def apply(self) -> None:
        """Apply the settings to this process."""
        with contextlib.suppress(OSError):
            os.chdir(self.cwd)
        sys.argv[:] = self.argv
        cast(Any, warnings.filters)[:] = self.warning_filters
        for logger, level in self.log_levels.items():
            logging.getLogger(logger or None).setLevel(level)
        if self.nice:
            os.nice(self.nice)


class Status:
    """What one worker is doing: the number of its batch, or a constant; and the URL that it waits for.

    Written by the worker; outlives it.
    """

    # A cache line for the number, and the URL.
    _NUMBER_BYTES, _URL_BYTES = 64, 1024
    NBYTES = _NUMBER_BYTES + _URL_BYTES

    def __init__(self, descriptor: int) -> None:
        status = memoryview(mapped(descriptor, self.NBYTES))
        self._cell, self._url = status[: self._NUMBER_BYTES].cast("q"), status[self._NUMBER_BYTES :]

    def making(self, number: int) -> None:
        """Say which batch is being made, or a constant."""
        self._cell[0] = number

    def reading(self, url: str) -> None:
        """Say which URL is waited for; "" for none. Its end is left out if it is too long."""
        text = url.encode(errors="replace")[: self._URL_BYTES - 1] + b"\0"
        self._url[: len(text)] = text

    @property
    def doing(self) -> int:
        """The number of the batch that is being made, or a constant."""
        return int(self._cell[0])

    @property
    def url(self) -> str:
        """The URL that is waited for; "" for none."""
        return bytes(self._url).partition(b"\0")[0].decode(errors="replace")
