"""The systems, by name, with the settings of their thread pools. Loading a system imports its module and TensorFlow.

Each system is one way to feed a training loop, written as its documentation recommends, and short enough to serve as
an example. It is the function of its name in a module of this package. `staged` has variants, which differ in their
options.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from staging_tf1.bench import BenchError

if TYPE_CHECKING:
    from staging_tf1.bench.case import System

__all__ = ["BOUNDS", "POOLS", "SYSTEMS", "SystemName", "default_systems", "load_system", "parse_system"]


# The fields of a request for the thread pools, and their names in a `tf.ConfigProto`.
POOLS = {
    "inter_op": "inter_op_parallelism_threads",
    "intra_op": "intra_op_parallelism_threads",
    "no_spinning": "experimental.disable_thread_spinning",
}


def _parse_pool(text: str) -> tuple[str, Any]:
    """Parse `inter_op=1`, `intra_op=1` or `no_spinning` into a name and a value, or raise BenchError.

    >>> _parse_pool("inter_op=2"), _parse_pool("no_spinning")
    (('inter_op', 2), ('no_spinning', True))
    """
    if text == "no_spinning":
        return text, True
    match = re.fullmatch(r"(inter_op|intra_op)=([1-9]\d{0,2})", text)
    if match is None:
        raise BenchError(
            f"Unknown pool setting '@{text}', expected @inter_op=N or @intra_op=N (N from 1 to 999), or @no_spinning."
        )
    return match[1], int(match[2])


def _pool_words(pools: tuple[tuple[str, Any], ...]) -> str:
    """Return the text that `_parse_pool` parses into `pools`."""
    return "".join(f"@{name}" if name == "no_spinning" else f"@{name}={value}" for name, value in pools)


@dataclass(frozen=True)
class _Listed:
    module: str
    help_text: str
    # Whether the system supports several feed threads or worker processes. Their number then follows the name, as in
    # "staged:4".
    threaded: bool = False
    # The function of the system, if its name differs, and its keyword arguments.
    function: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    # Seconds after which a measurement counts as hung, instead of the usual limit.
    limit_secs: float = 0.0

    @property
    def ours(self) -> bool:
        return self.module == "ours"


def _staged(help_text: str, **options: Any) -> _Listed:
    return _Listed("ours", help_text, threaded=True, function="staged", options=options)


# The bounds are computed from these; they are measured along with every other system.
BOUNDS = ("const", "source")

SYSTEMS = {
    "feed_dict": _Listed("by_hand", "session.run(train_op, feed_dict)"),
    "hand_classic": _Listed(
        "by_hand", "by hand: feed threads, RandomShuffleQueue, enqueue_many, dequeue_many", threaded=True
    ),
    "hand_area": _Listed(
        "by_hand", "by hand: FIFOQueue of whole batches, a staging area, make_callable", threaded=True
    ),
    "from_generator": _Listed("tf_data", "tf.data.Dataset.from_generator, prefetch"),
    "py_function": _Listed("tf_data", "tf.data: our source in a tf.py_function, num_parallel_calls", threaded=True),
    "tf_data": _Listed("tf_data", "tf.data in TensorFlow ops, prefetch; W5: front to back"),
    "tf_data_shuffled": _Listed("tf_data", "W5: tf.data with a shuffle buffer of 10,000"),
    "tensorpack": _Listed("tensorpack", "tensorpack's QueueInput and StagingInput", function="run"),
    "tensorpack_zmq": _Listed(
        "tensorpack",
        "tensorpack's MultiProcessRunnerZMQ, which forks",
        threaded=True,
        function="processes",
        # Processes that were forked beside TensorFlow's threads may wait for a lock forever.
        limit_secs=60.0,
    ),
    "grain_mp": _Listed("by_processes", "our source in Grain's mp_prefetch, and feed_dict", threaded=True),
    "torch_loader": _Listed("by_processes", "our source in PyTorch's DataLoader, and feed_dict", threaded=True),
    "classic": _Listed("ours", "CustomRunner with a shuffle queue, StagingArea, put in the loop", threaded=True),
    "classic_fifo": _Listed("ours", "CustomRunner with a queue of whole batches, StagingArea", threaded=True),
    "staged": _staged("staged(), StagingSession.make_callable"),
    "staged_autotune": _Listed("ours", "staged(num_threads=tf.data.AUTOTUNE)"),
    "staged_processes": _Listed(
        "ours", "staged(num_processes=N), StagingSession.make_callable", threaded=True, function="staged_processes"
    ),
    "staged_uint8": _staged("staged() on bytes, which the step converts", compact=True),
    "staged_nice": _staged("staged(nice=10)", nice=10),
    "staged_uint8_nice": _staged("staged_uint8 with nice=10 and capacity=4", compact=True, nice=10, capacity=4),
    "lockstep": _Listed("ours", "staged(lockstep=True)"),
}


@dataclass(frozen=True)
class SystemName:
    """A system, its number of feed threads or processes, and its thread pool settings, as in `staged:4@inter_op=1`."""

    system: str
    threads: int = 1
    # The name and value of each setting that is not TensorFlow's default.
    pools: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        threaded = self.system in SYSTEMS and SYSTEMS[self.system].threaded
        return (f"{self.system}:{self.threads}" if threaded else self.system) + _pool_words(self.pools)


def parse_system(text: str) -> SystemName:
    """Parse a name such as `staged`, which means one thread, `staged:4` or `staged:4@inter_op=1`, or raise BenchError.

    >>> str(parse_system("staged:4")), str(parse_system("feed_dict@no_spinning"))
    ('staged:4', 'feed_dict@no_spinning')
    """
    text, *pools = text.strip().split("@")
    match = re.fullmatch(r"(\w+)(?::(\d+))?", text)
    if match is None or match[1] not in SYSTEMS:
        raise BenchError(f"Unknown system {text!r}, expected one of {', '.join(SYSTEMS)}.")
    threads = int(match[2] or 1)
    if match[2] and not SYSTEMS[match[1]].threaded:
        raise BenchError(f"System {match[1]!r} takes no number of threads, got {text!r}. Remove ':{match[2]}'.")
    if not 1 <= threads <= 256:
        raise BenchError(f"System {match[1]!r} got {threads} threads, expected 1 to 256.")
    return SystemName(match[1], threads, tuple(map(_parse_pool, pools)))


def default_systems(threads: Iterable[int]) -> list[SystemName]:
    """Return all systems; those with feed threads once for each number in `threads`."""
    numbers = list(threads)
    return [
        SystemName(name, count) for name, listed in SYSTEMS.items() for count in (numbers if listed.threaded else [1])
    ]


def load_system(name: str) -> System:
    """Return the system of that name, or the function in `bounds`."""
    listed = SYSTEMS.get(name) or _Listed("bounds", "")
    module = importlib.import_module(f"staging_tf1.bench.systems.{listed.module}")
    return functools.partial(getattr(module, listed.function or name), **listed.options)
