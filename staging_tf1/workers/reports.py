"""Log records and warnings of a worker process, which appear in the training process.

What it prints goes to the same standard output and standard error.
"""

from __future__ import annotations

import logging
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable
from logging.handlers import QueueHandler
from typing import Any

from staging_tf1.workers.lanes import Lane, Report

__all__ = ["Shown", "forward"]


def forward(worker: str, lane: Callable[[], Lane | None]) -> None:
    """Forward log records and warnings of this process to the training process, if a thread there waits at a `lane`."""
    logging.root.handlers[:] = [_Forwarding(worker, lane)]

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if (to := lane()) is None or file is not None:
            (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))
            return
        kind = category if category.__module__ in ("builtins", "staging_tf1.errors") else UserWarning
        to.send(Report(pickle.dumps((str(message), kind, filename, lineno))))

    warnings.showwarning = show


class _Forwarding(QueueHandler):
    """Sends each record as text: its arguments may not be picklable."""

    def __init__(self, worker: str, lane: Callable[[], Lane | None]) -> None:
        super().__init__(lane)  # type: ignore[arg-type]
        self._worker, self._lane = worker, lane

    def enqueue(self, record: logging.LogRecord) -> None:
        record.msg, record.processName = f"[{self._worker}] {record.msg}", self._worker
        record.stack_info = None  # the text has it
        if (to := self._lane()) is None:
            sys.stderr.write(f"{record.msg}\n")
        else:
            to.send(Report(pickle.dumps(vars(record))))


class Shown:
    """Shows log records and warnings of the workers in the training process."""

    def __init__(self) -> None:
        # Warnings of all workers count as those of one program: each is shown once for each line.
        self._warned: dict[Any, Any] = {}

    def show(self, payload: bytes) -> None:
        """Show a report. If that fails, as with a warning that is an error here, print why: the batch is good."""
        try:
            said = pickle.loads(payload)
            if isinstance(said, tuple):
                text, category, filename, lineno = said
                warnings.warn_explicit(text, category, filename, lineno, registry=self._warned)
                return
            record = logging.makeLogRecord(said)
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        except Exception:
            if sys.stderr is not None:
                sys.stderr.write(f"cannot show a message of a worker process:\n{traceback.format_exc()}")
