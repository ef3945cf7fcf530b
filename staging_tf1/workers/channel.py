"""`Channel`: messages and file descriptors between the training process and one worker process."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Channel", "Kind", "Message", "PeerGone"]

# Enough for a batch of numbers, whose arrays are not sent.
_INBOX_BYTES = 64 << 10
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * 4)


class PeerGone(Exception):
    """The process at the other end has ended, or the channel was closed."""


class Kind(IntEnum):
    """What a message says."""

    # To the worker.
    START = 0
    MAKE = 1
    BUFFER = 2
    DROP = 3
    # From the worker.
    MADE = 4
    NEED = 5
    FAILED = 6
    LOG = 7
    WARNING = 8


# Faster than `Kind(number)`.
_KINDS = list(Kind)


class Message(NamedTuple):
    """One message. The meaning of the numbers depends on the kind, see `worker.py` and `pool.py`."""

    kind: Kind
    # Mostly the number of a batch.
    number: int = 0
    first: int = 0
    second: int = 0
    third: int = 0
    payload: bytes | bytearray | memoryview = b""
    descriptors: Sequence[int] = ()


class Channel:
    """One end of a socket pair. Several threads may send, and one at a time receives.

    Sending and receiving release the GIL while they wait.

    Args:
      end: the socket.
      takes_descriptors: whether the other end sends descriptors.
    """

    _HEADER = struct.Struct("<QBqqqq")

    def __init__(self, end: socket.socket, *, takes_descriptors: bool = False) -> None:
        self._socket, self._takes_descriptors = end, takes_descriptors
        self._inbox = bytearray(_INBOX_BYTES)
        # Bytes in the inbox that were read with the last message, and belong to the next one.
        self._rest = b""
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The descriptor, for `poll`."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
          PeerGone: the other end is closed.
        """
        kind, number, first, second, third, payload, descriptors = message
        header = self._HEADER.pack(len(payload), kind, number, first, second, third)
        try:
            with self._sending:
                if descriptors:
                    # The descriptors belong to the first byte, so they arrive with the header.
                    socket.send_fds(self._socket, [header], list(descriptors))
                    self._socket.sendall(payload)
                elif len(payload) < _INBOX_BYTES:
                    self._socket.sendall(header + payload)
                else:
                    self._socket.sendall(header)
                    self._socket.sendall(payload)
        except OSError as error:
            raise PeerGone from error

    def receive(self) -> Message:
        """Wait for a message. Its payload is valid until the next call.

        Raises:
          PeerGone: the other end is closed.
        """
        size = self._HEADER.size
        try:
            got, descriptors = self._first(size)
            if got < size:
                self._fill(got, size)
                got = size
            length, kind, number, first, second, third = self._HEADER.unpack_from(self._inbox)
            end = size + length
            if got < end:
                self._fill(got, end)
            elif got > end:
                self._rest = bytes(self._inbox[end:got])
        except OSError as error:
            raise PeerGone from error
        return Message(_KINDS[kind], number, first, second, third, memoryview(self._inbox)[size:end], descriptors)

    def _first(self, size: int) -> tuple[int, Sequence[int]]:
        """Read the beginning of a message into the inbox. Returns the number of bytes, and descriptors."""
        if self._rest:
            got = len(self._rest)
            self._inbox[:got] = self._rest
            self._rest = b""
            return got, ()
        if not self._takes_descriptors:
            got = self._socket.recv_into(self._inbox)
            if not got:
                raise PeerGone
            return got, ()
        # Only the header, because the next message may have descriptors of its own.
        header = memoryview(self._inbox)[:size]
        got, ancillary, _, _ = self._socket.recvmsg_into([header], _ANCILLARY_BYTES)
        if not got:
            raise PeerGone
        descriptors: list[int] = []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors += memoryview(data[: len(data) // 4 * 4]).cast("i").tolist()
        return got, descriptors

    def _fill(self, got: int, end: int) -> None:
        """Read on until the inbox has `end` bytes."""
        if end > len(self._inbox):
            larger = bytearray(end + end // 8)
            larger[:got] = self._inbox[:got]
            self._inbox = larger
        view = memoryview(self._inbox)
        while got < end:
            more = self._socket.recv_into(view[got:end])
            if not more:
                raise PeerGone
            got += more

    def shut_down(self) -> None:
        """Wake both ends. Called from any thread, and more than once."""
        with contextlib.suppress(OSError):  # the other end has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor. No thread may use the channel."""
        self._socket.close()


def channel_at(descriptor: int) -> Channel:
    """Make a channel from an inherited descriptor."""
    os.set_inheritable(descriptor, False)
    return Channel(socket.socket(fileno=descriptor), takes_descriptors=True)
