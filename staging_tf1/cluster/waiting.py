"""Waiting for an entry of the ledger: with a word about what is waited for, and an end if the server is silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.layout import Layout
from staging_tf1.errors import ClusterError

# How soon a wait is logged, and how often again.
FIRST_LOG_SECS, LOG_SECS = 1.0, 30.0
# The longest pause between two looks, the first as a share of it, and how it grows.
_POLL_SECS, _FIRST, _GROWTH = 0.5, 0.2, 1.5


class Backoff:
    """The pauses between the looks of a task that waits: short ones first.

    All tasks of a cluster may wait at once, and each look costs the server. So from 100 workers on the pauses grow with
    their number, and what all of them cost does not.
    """

    def __init__(self, layout: Layout) -> None:
        # Tasks that begin to wait together do not look together.
        tasks = [*layout.workers, *layout.servers]
        number = tasks.index(layout.task) if layout.task in tasks else 0
        spread = 0.75 + 0.5 * (number * 0.6180339887 % 1.0)
        self._most = spread * _POLL_SECS * max(1.0, layout.num_workers / 100)
        self.restart()

    def restart(self) -> None:
        """Begin again with a short pause."""
        self._next = _FIRST * self._most

    def next(self) -> float:
        """Return the next pause, in seconds."""
        pause = self._next
        self._next = min(self._most, _GROWTH * pause)
        return pause


class Patience(NamedTuple):
    """How long to wait for a server that does not answer."""

    secs: float
    # Why, for the message; or "".
    reason: str = ""


def wait_until(
    done: Callable[[dict[str, Any]], bool],
    read: Callable[[], dict[str, Any]],
    layout: Layout,
    clock: Clock,
    *,
    waits_for: Callable[[dict[str, Any]], str | None],
    patience: Callable[[], Patience],
) -> dict[str, Any]:
    """Read entries of the ledger until they are `done`, and return them. Log now and then what this task `waits_for`.

    `waits_for` may raise to end the wait. `patience` is how long the server of the ledger may be silent.

    Raises:
      ClusterError: it has been silent for longer.
    """
    answered = clock.now()
    next_log = answered + FIRST_LOG_SECS
    pauses = Backoff(layout)
    while True:
        try:
            entries = read()
            answered = clock.now()
        except tf.errors.OpError as error:
            _check_answer(layout, clock.now() - answered, patience(), error)
            entries = {}
        if entries and done(entries):
            return entries
        awaited = waits_for(entries)
        if not entries and clock.now() - answered > FIRST_LOG_SECS:
            server = layout.servers[0]
            awaited = f"{server} at {layout.address(server)}, which does not answer"
        if awaited and clock.now() >= next_log:
            logging.info("%s waits for %s", layout.task, awaited)
            next_log = clock.now() + LOG_SECS
        time.sleep(pauses.next())


def _check_answer(layout: Layout, secs: float, patience: Patience, error: Exception) -> None:
    if secs > patience.secs:
        server = layout.servers[0]
        raise ClusterError(
            f"{layout.task}: {server} at {layout.address(server)} has not answered for {secs:.0f} s: "
            f"{str(error).strip()}{patience.reason and ' '}{patience.reason}"
        ) from error
