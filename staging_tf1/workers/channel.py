"""`Channel`: messages and file descriptors between the training process and one worker process.

A message is a record, one class for each kind.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "CannotLoad",
    "Channel",
    "Drop",
    "Failed",
    "Log",
    "Made",
    "Make",
    "Message",
    "Move",
    "Need",
    "PeerGone",
    "Start",
    "Warn",
]

# Enough for a batch of numbers, whose arrays are not sent.
_INBOX_BYTES = 64 << 10
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * 4)


class PeerGone(Exception):
    """The process at the other end has ended, or the channel was closed."""


Payload: TypeAlias = bytes | bytearray | memoryview


class Start(NamedTuple):
    """The first message to a worker."""

    # A pickled `Setup`.
    payload: Payload
    # The descriptor of the shipped source.
    descriptors: Sequence[int]


class Make(NamedTuple):
    """To a worker: make batch `batch` in buffer `buffer`."""

    batch: int
    buffer: int
    # The size of the buffer, in bytes.
    nbytes: int
    # The descriptor of the buffer, if it is new to the worker; else empty.
    descriptors: Sequence[int]


class Move(NamedTuple):
    """To a worker: move batch `batch`, which was too large for its buffer, to another one. The answer to `Need`."""

    batch: int
    buffer: int
    # The size of the buffer, in bytes.
    nbytes: int
    # The descriptor of the buffer, if it is new to the worker; else empty.
    descriptors: Sequence[int]


class Drop(NamedTuple):
    """To a worker: forget buffer `buffer`."""

    buffer: int


class Made(NamedTuple):
    """From a worker: batch `batch` is in its buffer."""

    batch: int
    # The batch without what is in the buffer.
    payload: Payload


class Need(NamedTuple):
    """From a worker: the buffer is too small for batch `batch`."""

    batch: int
    # The bytes that the batch takes.
    least: int
    # The bytes that the buffers of the next batches should have.
    wanted: int


class Failed(NamedTuple):
    """From a worker: the source raised when it made batch `batch`."""

    batch: int
    # The exception, as `failures.described` pickles it.
    payload: Payload


class CannotLoad(NamedTuple):
    """From a worker: there is no batch `batch`, because the source cannot be loaded."""

    batch: int
    # The exception, as `failures.described` pickles it.
    payload: Payload


class Log(NamedTuple):
    """From a worker: it has logged."""

    # The attributes of a `LogRecord`, pickled.
    payload: Payload


class Warn(NamedTuple):
    """From a worker: it has issued a warning."""

    # The arguments of `warnings.warn_explicit`, pickled.
    payload: Payload


Message: TypeAlias = Start | Make | Move | Drop | Made | Need | Failed | CannotLoad | Log | Warn


# In a header, a record is its index in this list. Its numbers come first, then its payload, then its descriptors.
_RECORDS: list[Any] = [Start, Make, Move, Drop, Made, Need, Failed, CannotLoad, Log, Warn]
_INDICES = {record: index for index, record in enumerate(_RECORDS)}
_MOST_NUMBERS = 3


class _Layout(NamedTuple):
    numbers: int
    has_payload: bool
    has_descriptors: bool

    @classmethod
    def of(cls, fields: Sequence[str]) -> _Layout:
        has_payload, has_descriptors = "payload" in fields, "descriptors" in fields
        return cls(len(fields) - has_payload - has_descriptors, has_payload, has_descriptors)


_LAYOUTS = [_Layout.of(record._fields) for record in _RECORDS]


class Channel:
    """One end of a socket pair. Several threads may send, and one at a time receives.

    Sending and receiving release the GIL while they wait.

    Args:
      end: the socket.
      takes_descriptors: whether the other end sends descriptors.
    """

    _HEADER = struct.Struct("<QBqqq")

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
        index = _INDICES[type(message)]
        layout = _LAYOUTS[index]
        payload: Payload = getattr(message, "payload", b"")
        descriptors: Sequence[int] = getattr(message, "descriptors", ())
        numbers = [*message[: layout.numbers], *[0] * (_MOST_NUMBERS - layout.numbers)]
        header = self._HEADER.pack(len(payload), index, *numbers)
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
            got, descriptors = self._beginning(size)
            if got < size:
                self._fill(got, size)
                got = size
            length, index, *numbers = self._HEADER.unpack_from(self._inbox)
            end = size + length
            if got < end:
                self._fill(got, end)
            elif got > end:
                self._rest = bytes(self._inbox[end:got])
        except OSError as error:
            raise PeerGone from error
        layout = _LAYOUTS[index]
        parts: list[Any] = numbers[: layout.numbers]
        if layout.has_payload:
            parts.append(memoryview(self._inbox)[size:end])
        if layout.has_descriptors:
            parts.append(descriptors)
        message: Message = _RECORDS[index](*parts)
        return message

    def _beginning(self, size: int) -> tuple[int, Sequence[int]]:
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
