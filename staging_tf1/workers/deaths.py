"""`Deaths`: which batch workers died of, and when to stop replacing them."""

from __future__ import annotations

import signal
from collections import Counter

from absl import logging

from staging_tf1.errors import SourceError
from staging_tf1.workers.failures import CannotStart
from staging_tf1.workers.setup import IDLE, STARTING

__all__ = ["Deaths"]

# After this many deaths over one batch, the next attempt would most likely end in the same way.
_MOST = 3
_DURING = {IDLE: "while it was idle", STARTING: "at its start"}
_CURE = (
    "SIGKILL mostly means that the machine ran out of memory, SIGSEGV an error in a library. Run the source with "
    "num_threads= instead to see it fail, or lower num_processes."
)


class Deaths:
    """The workers of a pool that have died since the last success, by what they were doing."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # By the number of a batch, or a constant of `setup.py`.
        self._counts: Counter[int] = Counter()
        self._how: dict[int, str] = {}

    def note(self, worker: str, doing: int, exit_status: int) -> None:
        """Count a worker that has died; the caller replaces it."""
        self._counts[doing] += 1
        self._how[doing] = how = _how(exit_status)
        during = _DURING.get(doing, f"while it made batch {doing}")
        logging.warning("worker process '%s' %s %s; another one takes its place", worker, how, during)

    def forgive(self, number: int) -> None:
        """Forget the deaths over batch `number`, at the start and while idle: a worker has made that batch."""
        if self._counts:
            for doing in (number, STARTING, IDLE):
                self._counts.pop(doing, None)

    def error_for(self, number: int) -> SourceError | None:
        """Return why batch `number` should not be requested again; None if it should."""
        if self._counts[number] >= _MOST:
            return SourceError(
                f"'{self._owner}': {_MOST} worker processes ended while they made batch {number}; the last one "
                f"{self._how[number]}. {_CURE}"
            )
        for doing in (STARTING, IDLE):
            if self._counts[doing] >= _MOST:
                return CannotStart(
                    f"'{self._owner}': {_MOST} worker processes in a row ended without making a batch; the last one "
                    f"{self._how[doing]}. {_CURE}"
                )
        return None


def _how(exit_status: int) -> str:
    if exit_status >= 0:
        return f"ended with exit code {exit_status}"
    try:
        name = signal.Signals(-exit_status).name
    except ValueError:
        name = f"signal {-exit_status}"
    return f"was killed by {name}"
