"""The protocol of slots and tokens, and the run of a cluster, as sequences."""

from __future__ import annotations

import sequence
from sequence import Part, Says

_PUT, _SLOTS, _TOKENS, _GET = range(4)
_WORKER, _CHIEF, _PS = range(3)


def draw_tokens() -> str:
    """Return the picture of a put, a get, a stop and the end of the data."""
    actors = [
        ("put\nin a feed thread", "ours"),
        ("slots\nqueue of free places", ""),
        ("tokens\nqueue of batches", "good"),
        ("get\nin your step", "ours"),
    ]
    return sequence.draw(
        "Slots and tokens",
        actors,
        [
            Part("A batch is put"),
            Says(_PUT, _PUT, "computes the values"),
            Says(_PUT, _SLOTS, "dequeue: may wait", "ours"),
            Says(_PUT, _TOKENS, "enqueue: never waits"),
            Part("A step takes it"),
            Says(_GET, _TOKENS, "dequeue: may wait", "ours"),
            Says(_GET, _SLOTS, "enqueue"),
            Says(_GET, _GET, "your tensors"),
            Part("A stop"),
            Says(_SLOTS, _PUT, "a slot for each put that waits"),
            Says(_PUT, _TOKENS, "enqueue, then close"),
            Part("The data ends"),
            Says(_PUT, _TOKENS, "close"),
            Says(_GET, _TOKENS, "drains the rest,"),
            Says(_TOKENS, _GET, "then OutOfRangeError"),
        ],
    )


def draw_cluster_run() -> str:
    """Return the picture of a run of a cluster, from its start to its end."""
    actors = [("worker", "ours"), ("chief", "ours"), ("ps 0\nledger, position", "good")]
    return sequence.draw(
        "A run of a cluster",
        actors,
        [
            Part("The start"),
            Says(_CHIEF, _PS, "begins a run"),
            Says(_CHIEF, _PS, "removes all fences"),
            Says(_CHIEF, _PS, "initializes or restores"),
            Says(_WORKER, _PS, "waits for the run"),
            Says(_CHIEF, _PS, "the run is ready"),
            Says(_WORKER, _PS, "takes its fence, reads its position"),
            Says(_CHIEF, _PS, "the same"),
            Part("Every step"),
            Says(_WORKER, _PS, "fence, position + 1"),
            Says(_CHIEF, _PS, "fence, position + 1"),
            Part("The end"),
            Says(_WORKER, _PS, "has finished"),
            Says(_CHIEF, _PS, "waits for all workers"),
            Says(_CHIEF, _CHIEF, "saves the last checkpoint"),
            Says(_CHIEF, _PS, "ends the run"),
            Says(_PS, _PS, "returns"),
        ],
    )
