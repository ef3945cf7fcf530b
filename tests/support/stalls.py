"""A session with a short stall limit, and the reports of its watchdog."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from load import slowdown

import staging_tf1 as staging
from staging_tf1.errors import StallError

# A run counts as stalled after this time, which is longer than any step of these tests on a busy machine.
SECS = 0.2 * slowdown()
# The limit for hangs; no test waits this long.
LIMIT_SECS = 200.0


class Reports(logging.Handler):
    """Collects the watchdog's log, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: queue.Queue[str] = queue.Queue()
        self.on_report: Callable[[], None] = lambda: None

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "Most likely" in text:
            self.texts.put(text)
            self.on_report()


def watched_session(**kwargs: Any) -> staging.StagingSession:
    return staging.StagingSession(stall_secs=SECS, stall_raises=True, **kwargs)


def cause_in(report: str) -> str:
    """Return the sentence of the report that names the cause."""
    line = report.splitlines()[1]
    assert line.startswith("Most likely: ")
    return line.removeprefix("Most likely: ")


def stall(sess: Any, fetches: Any) -> str:
    with pytest.raises(StallError) as caught:
        sess.run(fetches)
    assert str(caught.value) == caught.value.report
    return cause_in(caught.value.report)


def numbers_source(batches: int = 100) -> Any:
    return staging.sources.ArraySource(np.arange(2 * batches), batch_size=2, epochs=1)
