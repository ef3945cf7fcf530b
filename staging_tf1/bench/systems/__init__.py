"""The systems, by name. They are loaded when they are asked for, and TensorFlow with them.

Each file is one way to feed a training loop, written as the documentation of that way recommends, and short enough
to be read as an example of it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from staging_tf1.bench.errors import BenchError
from staging_tf1.bench.pools import parse_pool, pool_words

if TYPE_CHECKING:
    from staging_tf1.bench.task import System

__all__ = ["BOUNDS", "SYSTEMS", "SystemName", "default_systems", "load_system", "parse_system"]


@dataclass(frozen=True)
class _Listed:
    help_text: str
    # Whether it can have several feed threads; then its name is followed by their number, "staged:4".
    threaded: bool = False
    ours: bool = False


# What the bounds are computed from; measured along with every other system.
BOUNDS = {
    "const": "the same step on a batch that is in the graph: no input at all",
    "source": "the batches alone, made in plain numpy: no graph at all",
}

SYSTEMS = {
    "feed_dict": _Listed("session.run(train_op, feed_dict)"),
    "hand_classic": _Listed("by hand: feed threads, RandomShuffleQueue, enqueue_many, dequeue_many", threaded=True),
    "hand_area": _Listed("by hand: FIFOQueue of whole batches, a staging area, make_callable", threaded=True),
    "from_generator": _Listed("tf.data.Dataset.from_generator, prefetch"),
    "tf_data": _Listed("tf.data in TensorFlow ops, prefetch; W5: front to back"),
    "tf_data_shuffled": _Listed("W5: tf.data with a shuffle buffer of 10,000"),
    "tensorpack": _Listed("tensorpack's QueueInput and StagingInput"),
    "classic": _Listed("CustomRunner with a shuffle queue, StagingArea, put in the loop", threaded=True, ours=True),
    "classic_fifo": _Listed("CustomRunner with a queue of whole batches, StagingArea", threaded=True, ours=True),
    "staged": _Listed("staged(), StagingSession.make_callable", threaded=True, ours=True),
    "staged_uint8": _Listed("staged() on bytes, converted behind the area", threaded=True, ours=True),
    "staged_nice": _Listed("staged(nice=10), on a source as staged", threaded=True, ours=True),
    "staged_uint8_nice": _Listed("staged_uint8 with nice=10 and room for four batches", threaded=True, ours=True),
    "lockstep": _Listed("staged(lockstep=True)", ours=True),
}


@dataclass(frozen=True)
class SystemName:
    """A system, its number of feed threads and TensorFlow's thread pools, as in `staged:4@inter_op=1`."""

    system: str
    threads: int = 1
    # Name and value, of those that are not TensorFlow's own choice.
    pools: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        threaded = self.system in SYSTEMS and SYSTEMS[self.system].threaded
        return (f"{self.system}:{self.threads}" if threaded else self.system) + pool_words(self.pools)


def parse_system(text: str) -> SystemName:
    """From `staged:4`, or `staged`, which has one thread; `@inter_op=1` and the like behind it set thread pools.

    Raises:
      BenchError: no such system or pool, or one that has no threads to count.

    >>> str(parse_system("staged:4")), str(parse_system("feed_dict@no_spinning"))
    ('staged:4', 'feed_dict@no_spinning')
    """
    text, *pools = text.strip().split("@")
    found = re.fullmatch(r"(\w+)(?::(\d+))?", text)
    if found is None or found[1] not in SYSTEMS:
        raise BenchError(f"There is no system {text!r}. Choose among {', '.join(SYSTEMS)}.")
    threads = int(found[2] or 1)
    if found[2] and not SYSTEMS[found[1]].threaded:
        raise BenchError(f"System {found[1]!r} has no number of threads, got {text!r}. Leave out ':{found[2]}'.")
    if not 1 <= threads <= 256:
        raise BenchError(f"System {found[1]!r} got {threads} threads, wanted 1 to 256.")
    return SystemName(found[1], threads, tuple(map(parse_pool, pools)))


def default_systems(threads: Iterable[int]) -> list[SystemName]:
    """All systems; those with feed threads once for each number of them."""
    numbers = list(threads)
    return [
        SystemName(name, count) for name, listed in SYSTEMS.items() for count in (numbers if listed.threaded else [1])
    ]


def load_system(name: str) -> System:
    """The system of that name, or one of the bounds."""
    system: System = importlib.import_module(f"staging_tf1.bench.systems.{name}").run
    return system
