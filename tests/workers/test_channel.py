"""Messages between the training process and a worker process: each kind arrives as the record that was sent."""

from __future__ import annotations

import os
import socket

import pytest

from staging_tf1.workers import channel
from staging_tf1.workers.channel import Channel, Message

_LARGE = bytes(range(256)) * 1024


@pytest.mark.parametrize(
    "message",
    [
        channel.Start(b"settings", []),
        channel.Make(1, 2, 3, []),
        channel.Move(1 << 40, 2, 3, []),
        channel.Drop(2),
        channel.Made(0, b""),
        channel.Made(5, _LARGE),
        channel.Need(5, 6, 7),
        channel.Failed(5, b"why"),
        channel.CannotLoad(5, b"why"),
        channel.Log(b"record"),
        channel.Warn(b"arguments"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    here, there = socket.socketpair()
    sender, receiver = Channel(here), Channel(there, takes_descriptors=hasattr(message, "descriptors"))
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    # The second one checks that the first left nothing behind.
    for _ in range(2):
        sender.send(message)
        assert receiver.receive() == message
    sender.close()
    receiver.close()


def test_descriptors_arrive_with_the_request_that_names_their_buffer() -> None:
    here, there = socket.socketpair()
    sender, receiver = Channel(here), Channel(there, takes_descriptors=True)
    reader, writer = os.pipe()
    sender.send(channel.Make(1, 2, 3, [writer]))
    sender.send(channel.Make(4, 2, 3, ()))
    first, second = receiver.receive(), receiver.receive()
    assert isinstance(first, channel.Make) and isinstance(second, channel.Make)
    (received,) = first.descriptors
    os.write(received, b"x")
    assert os.read(reader, 1) == b"x" and not list(second.descriptors)
    for descriptor in (reader, writer, received):
        os.close(descriptor)
    sender.close()
    receiver.close()
