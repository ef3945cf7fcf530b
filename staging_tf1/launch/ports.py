"""Finds free TCP ports of this machine."""

from __future__ import annotations

import contextlib
import socket


def free_ports(host: str, count: int) -> list[int]:
    """Return `count` different free ports of `host`.

    All are bound before any is released, because the system may hand out a released port again at once. Another program
    may still take one before the task binds it.

    Raises:
        OSError: the system has no free port, or this process may not open so many sockets.
    """
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for each in bound:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in bound]
