"""Closes a session on a server in bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from absl import logging

from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.reach import unreachable


def close_within(secs: float, close: Callable[[], None], layout: Layout | None) -> None:
    """Call `close`, and return after `secs` at the latest: a warning then names what does not answer.

    TensorFlow closes a session when each step has been cleaned up on all its servers, and has no limit for that. With a
    parameter server that is gone, the thread that closes is left behind until that server is back.

    Args:
      secs: seconds.
      close: closes the session.
      layout: its cluster, for the message; None if unknown.

    Raises:
      Exception: what `close` has raised.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            close()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="staging:close", daemon=True)
    thread.start()
    thread.join(secs)
    if errors:
        raise errors[0]
    if thread.is_alive():
        gone = "" if layout is None else "; ".join(unreachable(layout, layout.servers))
        logging.warning(
            "The session is still closing after %g s, and is left behind: %s.",
            secs,
            gone or "its server does not answer",
        )
