"""How numbered records become batches: which of them, in which order, how many at a time, and how they are laid out.

`Batches` is immutable. A source of the same records in other batches has another `Batches`.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT32_MAX, INT64_MAX
from staging_tf1.sources.order import Order, Schedule, count_of, numbers_of
from staging_tf1.sources.padding import Padding
from staging_tf1.sources.ragged_rows import RaggedRows
from staging_tf1.sources.selection import Chosen, Records, digest
from staging_tf1.sources.spans import NO_SPANS, Spans
from staging_tf1.sources.transform import Transform, batch_rng, wants_rng

# How records whose sizes differ become a batch.
Layout = Padding | RaggedRows
# A batch gathers its part of each epoch separately.
_MOST_EPOCHS_A_BATCH = 2**16
# Spans of records that a fingerprint lists as left out. Of more, it has a hash.
_MOST_LISTED = 1000


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that all record sources share. See `RecordSource`."""

    batch_size: int
    shuffle: bool = False
    seed: int | None = None
    epochs: int | None = None
    shard: tuple[int, int] | None = None
    drop_remainder: bool = False
    across_epochs: bool = False
    transform: Transform | None = None

    def checked(self, owner: str) -> Options:
        """Check and normalize the options. Called before any file is opened."""
        wants_rng(owner, self.transform)
        return Options(
            arguments.whole(owner, "batch_size", self.batch_size, 1, INT32_MAX, "records in a batch"),
            arguments.flag(owner, "shuffle", self.shuffle),
            None if self.seed is None else arguments.seed(owner, self.seed),
            None
            if self.epochs is None
            else arguments.whole(owner, "epochs", self.epochs, 1, INT64_MAX, "None is endless"),
            arguments.shard(owner, self.shard, INT64_MAX),
            arguments.flag(owner, "drop_remainder", self.drop_remainder),
            arguments.flag(owner, "across_epochs", self.across_epochs),
            self.transform,
        )


class Arrangement(NamedTuple):
    """An order that replaces that of the records, or a shuffle of all of them.

    Attributes:
      maker: the method or function that makes it, for messages.
      too_late: why no records can be chosen afterwards, and what to do. `{caller}` stands for the method that chooses.
      no_part: why its source cannot be part of another one.
      is_random: whether it needs a seed even without a shuffle.
      text: its text in the fingerprint, as the order. Empty if the text of the records contains it.
      order: makes the order of one shard of the chosen records, from these, the seed, the shuffle and the shard.
    """

    maker: str
    too_late: str
    no_part: str
    is_random: bool
    text: str
    order: Callable[[Chosen, int | None, bool, tuple[int, int]], Order]


class Memo:
    """Values that are computed on first use, by one thread."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        # Reentrant, because the spec of batches may need the first record.
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the value of this name, or make it."""
        if name not in self._values:
            with self._lock:
                if name not in self._values:
                    self._values[name] = make()
        return self._values[name]


def draw_seed() -> int:
    """Draw the seed of a source that needs one and got none."""
    return secrets.randbits(31)


@dataclasses.dataclass(frozen=True)
class Batches:
    """How numbered records become batches. The options are checked.

    Raises ValueError if there would be no batch, or no valid one.
    """

    # For messages.
    owner: str
    chosen: Chosen
    options: Options
    # Used if something is random and `options` has no seed.
    drawn_seed: int = dataclasses.field(default_factory=draw_seed)
    layout: Layout | None = None
    arrangement: Arrangement | None = None
    # The numbers of records that keep their places, but are in no batch.
    left_out: Spans = NO_SPANS
    # What was computed about these batches.
    memo: Memo = dataclasses.field(default_factory=Memo, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        size, records = self.options.batch_size, self.order.num_records
        endless = self.options.across_epochs and self.options.epochs is None
        if self.options.drop_remainder and size > records and not endless:
            index, count = self.shard
            raise ValueError(
                f"{self.owner}: batch_size={size} is larger than the {records} records"
                f"{f' of shard {index} of {count}' if count > 1 else ''}, so drop_remainder=True leaves no batch. Use "
                f"a batch_size of at most {records}, or drop_remainder=False."
            )
        if self.options.across_epochs and size > _MOST_EPOCHS_A_BATCH * records:
            raise ValueError(
                f"{self.owner} got batch_size={size} with across_epochs=True, which would fill a batch from "
                f"more than {_MOST_EPOCHS_A_BATCH} epochs of {records} records. Use a smaller batch_size."
            )

    @functools.cached_property
    def order(self) -> Order:
        """The order of the records: which one is at each place of each epoch."""
        if self.arrangement is not None:
            return self.arrangement.order(self.chosen, self.seed, self.options.shuffle, self.shard)
        seed = self.seed if self.options.shuffle else None
        return Order(self.chosen.size, seed, *self.shard, self.chosen.select, self.chosen.keeps_slices)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The places of each batch."""
        options = self.options
        return Schedule(
            self.order.num_records, options.batch_size, options.epochs, options.drop_remainder, options.across_epochs
        )

    @functools.cached_property
    def wants_rng(self) -> bool:
        """Whether the transform takes a random generator."""
        return wants_rng(self.owner, self.options.transform)

    @property
    def shard(self) -> tuple[int, int]:
        """(index, count) among the places of all chosen records."""
        return self.options.shard or (0, 1)

    @property
    def order_is_random(self) -> bool:
        """Whether the order is random even without a shuffle."""
        return self.arrangement is not None and self.arrangement.is_random

    @functools.cached_property
    def is_random(self) -> bool:
        """Whether the batches depend on the seed."""
        return self.options.shuffle or self.order_is_random or self.wants_rng

    @property
    def seed_was_drawn(self) -> bool:
        """Whether the seed in use was drawn, and not passed."""
        return self.options.seed is None and self.is_random

    @property
    def seed(self) -> int | None:
        """The seed, passed or drawn. None if none was passed and nothing is random."""
        return self.drawn_seed if self.seed_was_drawn else self.options.seed

    def numbers_in(self, index: int, count: int = 1) -> Records:
        """Return the numbers of the records in a batch, or in `count` full batches of an epoch from it on."""
        pieces = self.schedule.pieces(index)
        if count > 1:
            start = pieces[0].start
            return self.order.records(pieces[0]._replace(stop=start + count * self.options.batch_size))
        if len(pieces) == 1:
            return self.kept(self.order.records(pieces[0]))
        return self.kept(np.concatenate([numbers_of(self.order.records(piece)) for piece in pieces]))

    def kept(self, records: Records) -> Records:
        """Return those of the records that are not left out."""
        if not self.left_out:
            return records
        numbers = numbers_of(records)
        left_out = self.left_out.has(numbers)
        return numbers[~left_out] if left_out.any() else records

    def is_left_out(self, index: int) -> bool:
        """Whether all records of a batch are left out."""
        return bool(self.left_out) and not count_of(self.numbers_in(index))

    def rng(self, index: int) -> np.random.Generator:
        """Return the random generator for the transform of a batch."""
        return batch_rng(self.seed or 0, self.shard[0], index)

    def fingerprint(self) -> dict[str, int | str]:
        """Return what determines the records of each batch, except for the records themselves."""
        fingerprint: dict[str, int | str] = {
            "num_records": self.order.total_records,
            "batch_size": self.options.batch_size,
            "shuffle": int(self.options.shuffle),
            "seed": -1 if self.seed is None or not self.is_random else self.seed,
            "drop_remainder": int(self.options.drop_remainder),
            "across_epochs": int(self.options.across_epochs),
            "shard_index": self.shard[0],
            "shard_count": self.shard[1],
        }
        if self.options.across_epochs and self.options.epochs is not None and not self.options.drop_remainder:
            # Only the last of these epochs ends with a partial batch.
            fingerprint["epochs"] = self.options.epochs
        if self.arrangement is not None and self.arrangement.text:
            fingerprint["order"] = self.arrangement.text
        if self.left_out:
            spans = self.left_out
            listed = len(spans.starts) <= _MOST_LISTED
            hashed = "" if listed else f"{spans.count} records, {digest(np.stack([spans.starts, spans.stops]))}"
            fingerprint["without"] = hashed or spans.text
        return fingerprint
