"""`Lane`: messages and descriptors between the training process and one worker process."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
from array import array
from typing import Any, NamedTuple

__all__ = ["Drop", "Failed", "Lane", "Made", "Make", "PeerGone", "Report", "TooLarge"]

# Less than what the system buffers for a socket.
_PACKET_BYTES = 32 << 10
# The first byte of a packet: whether the message goes on in the next one.
_MORE, _LAST = b"+", b"."


class PeerGone(Exception):
    """The process at the other end has ended, or the lane was closed."""


class Make(NamedTuple):
    """To a worker: make batch `batch` in the buffer with the number `buffer`, of `nbytes`.

    A batch that was `TooLarge` is moved there. The descriptor of a new buffer comes with the message.
    """

    batch: int
    buffer: int
    nbytes: int


class Drop(NamedTuple):
    """To a worker: forget buffer `buffer`."""

    buffer: int


class Made(NamedTuple):
    """From a worker: batch `batch` is in its buffer; `payload` is the rest of it, pickled."""

    batch: int
    payload: bytes


class TooLarge(NamedTuple):
    """From a worker: batch `batch` takes `least` bytes; the buffers of the next batches should have `wanted`."""

    batch: int
    least: int
    wanted: int


class Failed(NamedTuple):
    """From a worker: there is no batch `batch`, because of the exception in `payload`, see `failures.described`."""

    batch: int
    payload: bytes
    # Whether the source was loaded, and has raised; else no batch can be made.
    is_loaded: bool


class Report(NamedTuple):
    """From a worker: what it has logged or warned of, see `reports`."""

    payload: bytes


class Lane:
    """One end of a socket pair, for one request at a time. Several threads may send, and one at a time receives.

    The socket is one of packets: a message is read in one call, and with its own descriptors. Sending and
    receiving release the GIL while they wait.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The descriptor, for `poll`."""
        return self._socket.fileno()

    def send(self, message: Any, *descriptors: int) -> None:
        """Send a message, and copies of descriptors.

        Raises:
          PeerGone: the other end is closed.
        """
        left = pickle.dumps(message)
        try:
            with self._sending:
                while len(left) > _PACKET_BYTES:
                    self._socket.sendmsg([_MORE, left[:_PACKET_BYTES]])
                    left = left[_PACKET_BYTES:]
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
                self._socket.sendmsg([_LAST, left], rights)
        except OSError as error:
            raise PeerGone from error

    def receive(self) -> tuple[Any, list[int]]:
        """Wait for a message. Returns it, and the descriptors that came with it.

        Raises:
          PeerGone: the other end is closed.
        """
        parts, kind = [], _MORE
        try:
            while kind == _MORE:
                packet, descriptors, _, _ = socket.recv_fds(self._socket, 1 + _PACKET_BYTES, 1)
                if not packet:
                    raise PeerGone
                kind = packet[:1]
                parts.append(packet[1:])
        except OSError as error:
            raise PeerGone from error
        return pickle.loads(b"".join(parts)), descriptors

    def shut_down(self) -> None:
        """Wake both ends. Called from any thread, and more than once."""
        with contextlib.suppress(OSError):  # the other end has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor. No thread may use the lane."""
        self._socket.close()


def connected() -> tuple[socket.socket, socket.socket]:
    """Return two sockets for the ends of a lane."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def lane_at(descriptor: int) -> Lane:
    """Make a lane from an inherited descriptor."""
    os.set_inheritable(descriptor, False)
    return Lane(socket.socket(fileno=descriptor))
