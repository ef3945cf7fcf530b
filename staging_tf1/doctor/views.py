"""What a snapshot holds: plain values, so that a diagnosis can be made of them, and tested, without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepView:
    """A `Session.run` that has not returned."""

    secs: float
    # ", at train.py:41 in main()"; empty if no line of the user's is known.
    place: str
    # Whether it takes from any store (else it only puts, or only computes).
    takes: bool


@dataclass(frozen=True)
class FeederView:
    """A feed thread."""

    name: str
    # One of the constants of `feed.thread_state`, and for how long.
    doing: str
    secs: float
    # The number of the last batch that its source made; -1 before the first, and where the graph computes batches.
    batch: int
    # Batches that it has delivered, and the mean seconds that the source (or the put) took for one.
    batches: int
    mean_source_secs: float
    mean_put_secs: float
    place: str


@dataclass(frozen=True)
class StoreView:
    """An area or a queue."""

    # How messages call it.
    name: str
    # "staged" (an area of `staged()`), "queue", or "area" (a raw one).
    kind: str
    # Elements that it holds (None: could not be read) and has room for (0: unbounded).
    size: int | None
    capacity: int
    # None: unknown, or it cannot be closed.
    closed: bool | None
    # Elements that the step takes from it at once, and whether it puts into it.
    wanted: int = 0
    step_puts: bool = False
    min_after_dequeue: int = 0
    # The threads of ours that fill it; and for raw stores, how many other threads are about to put at this moment.
    feeders: tuple[FeederView, ...] = ()
    putters: int = 0
    # A pipeline of several towers: its name, which of them this is, and batches that no whole round could use yet.
    pipeline: str = ""
    tower: int = 0
    withheld: int = 0
    # What its puts take from, where that has ended, and whether it may have, unknown to us: a dataset.
    over: tuple[str, ...] = ()
    may_be_over: bool = False
    # Filled by the step itself.
    lockstep: bool = False
    # Why nobody fills it any more.
    error: str = ""
    # Whether the graph has an op that puts into it, and one that takes from it.
    has_put: bool = True
    has_take: bool = True


@dataclass(frozen=True)
class Snapshot:
    """One moment of a session."""

    step: StepView
    stores: tuple[StoreView, ...]
    # Names of variables without a value.
    uninitialized: tuple[str, ...] = ()
