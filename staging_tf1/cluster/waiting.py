"""Waiting for an entry of the ledger: with a word about what is waited for, and an end if the server is silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.ledger import Ledger
from staging_tf1.errors import ClusterError

_POLL_SECS = 0.1
# How soon the wait is logged, and how often again.
FIRST_LOG_SECS, _LOG_SECS = 1.0, 30.0


def wait_until(
    done: Callable[[dict[str, Any]], bool],
    ledger: Ledger,
    layout: Layout,
    *,
    waits_for: Callable[[dict[str, Any]], str | None],
    patience_secs: float,
) -> dict[str, Any]:
    """Reads the ledger until its entries are `done`, and returns them.

    Args:
      done: whether to return.
      ledger: what is read.
      layout: the cluster, for messages.
      waits_for: what this task waits for, logged now and then; None or "" logs nothing. It may raise to end the wait.
      patience_secs: how long the server of the ledger may be silent.

    Raises:
      ClusterError: it has been silent for longer.
    """
    answered = time.monotonic()
    next_log = answered + FIRST_LOG_SECS
    while True:
        try:
            entries = ledger.read()
            answered = time.monotonic()
        except tf.errors.OpError as error:
            _check_answer(layout, time.monotonic() - answered, patience_secs, error)
            entries = {}
        if entries and done(entries):
            return entries
        said = waits_for(entries)
        if said and time.monotonic() >= next_log:
            logging.info("%s waits for %s", layout.task, said)
            next_log = time.monotonic() + _LOG_SECS
        time.sleep(_POLL_SECS)


def _check_answer(layout: Layout, secs: float, most: float, error: Exception) -> None:
    if secs > most:
        server = layout.servers[0]
        raise ClusterError(
            f"{layout.task}: {server} at {layout.address(server)} has not answered for {secs:.0f} s: {error}"
        ) from error
