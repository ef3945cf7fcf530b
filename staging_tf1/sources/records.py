"""`RecordSource`: the base class of sources whose records are numbered."""

from __future__ import annotations

import abc
import copy
import functools
import secrets
import threading
from typing import Any, TypeVar

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT64_MAX
from staging_tf1.sources.composable import Composable
from staging_tf1.sources.files.file_list import file_list
from staging_tf1.sources.lengths import GroupedOrder
from staging_tf1.sources.options import Options
from staging_tf1.sources.order import Order, Schedule, numbers_of
from staging_tf1.sources.selection import numbers_among
from staging_tf1.sources.transform import Transform, batch_rng, hand_over, output_spec, wants_rng

__all__ = ["RecordSource"]

# A batch gathers its part of each epoch separately.
_MOST_EPOCHS_A_BATCH = 2**16
# Entries of a fingerprint that do not say what the records are.
_NOT_OF_RECORDS = frozenset(
    "source num_records batch_size shuffle seed drop_remainder across_epochs shard_index shard_count file_list".split()
)

_Source = TypeVar("_Source", bound="RecordSource")  # typing.Self came with Python 3.11


class RecordSource(Composable):
    """A source over numbered records.

    Provides order, shards, epochs, transforms, exact resume, and other sources of its records: `take`, `skip`, `split`,
    `pad`, `ragged`, `by_length` and `with_options`. A subclass implements `record_spec` and `gather`. Its `__init__`
    must set what these need before it calls `super().__init__`.

    >>> from staging_tf1.spec import ArraySpec
    >>> class Squares(RecordSource):
    ...     def record_spec(self, batch_dim):
    ...         return ArraySpec((batch_dim,), np.int64)
    ...
    ...     def gather(self, records):
    ...         if isinstance(records, slice):
    ...             records = np.arange(records.start, records.stop, records.step)
    ...         return records**2
    >>> squares = Squares(10, batch_size=4, epochs=1)
    >>> squares.num_batches, squares.batch(2).tolist()
    (3, [64, 81])

    Args:
      num_records: the number of records, over all shards.
      batch_size: records in a batch, at most 2**31 - 1.
      shuffle: shuffle all records, in a new order for each epoch.
      seed: from 0 to 2**63 - 1. None draws a seed, which the `seed` property returns.
      epochs: the number of passes over the records. None is endless.
      shard: (index, count): use only every `count`-th record in order, starting with record `index`.
      drop_remainder: skip partial batches.
      across_epochs: fill the last batch of an epoch with records of the next epoch. By default an epoch ends with a
        partial batch, as in `tf.data` when `batch` comes before `repeat`.
      transform: a function `transform(batch)` or `transform(batch, rng)` that returns the batch to deliver. It gets
        fresh arrays and may change them in place. The number of rows may change, too. It is called from several threads
        at the same time. `rng` is a numpy random generator that depends only on the seed, the index of the batch and
        the shard.

    Raises:
      TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self,
        num_records: int,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        across_epochs: bool = False,
        transform: Transform | None = None,
    ) -> None:
        owner = self._owner
        num_records = arguments.whole(owner, "num_records", num_records, 1, INT64_MAX, "records of all shards")
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        options = options.checked(owner)
        self._own_records = self._total_records = num_records
        self._set_options(options, secrets.randbits(31))
        self._take_shard(*arguments.shard(owner, options.shard, num_records))

    # Whether the order is random even without a shuffle.
    _order_is_random = False

    def _set_options(self, options: Options, drawn: int) -> None:
        """Set all options except the shard. `drawn` is the seed if one is needed and none is given."""
        self._shuffle = options.shuffle
        self._wants_rng = wants_rng(self._owner, options.transform)
        self.seed_was_drawn = options.seed is None and self._is_random
        self._seed = drawn if self.seed_was_drawn else options.seed
        self._transform = options.transform
        self._schedule = Schedule(
            self._total_records, options.batch_size, options.epochs, options.drop_remainder, options.across_epochs
        )

    @abc.abstractmethod
    def record_spec(self, batch_dim: int | None) -> Any:
        """Return the spec of what `gather` returns, a nest of `ArraySpec` whose shapes start with `batch_dim`.

        It may read a record to find out.
        """

    @abc.abstractmethod
    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        """Return the given records, in this order, as a nest of new arrays with one row for each.

        `records` holds their numbers: an int64 array, or a slice with start, stop and step. Must be thread-safe. Arrays
        made by `aligned_empty` are fed without a copy.
        """

    def _take_shard(self, index: int, count: int) -> None:
        order = self._order_of(index, count)
        batch_size, drop = self._schedule.batch_size, self._schedule.drop_remainder
        if drop and batch_size > order.num_records and not self._endless_across_epochs:
            raise ValueError(
                f"{self._owner}: batch_size={batch_size} is larger than the {order.num_records} records"
                f"{f' of shard {index} of {count}' if count > 1 else ''}, so drop_remainder=True leaves no batch. Use "
                f"a batch_size of at most {order.num_records}, or drop_remainder=False."
            )
        if self._schedule.across_epochs and batch_size > _MOST_EPOCHS_A_BATCH * order.num_records:
            raise ValueError(
                f"{self._owner} got batch_size={batch_size} with across_epochs=True, which would fill a batch from "
                f"more than {_MOST_EPOCHS_A_BATCH} epochs of {order.num_records} records. Use a smaller batch_size."
            )
        self._order = order
        self._schedule = Schedule(
            order.num_records, batch_size, self._schedule.epochs, drop, self._schedule.across_epochs
        )
        self._spec: Any = None
        self._plan = None
        self._spec_lock = threading.Lock()

    def _order_of(self, index: int, count: int) -> Order:
        """Make the order of one shard."""
        seed = self._seed if self._shuffle else None
        keeps_slices = all(selection.keeps_slices for selection in self._selections)
        select = functools.partial(numbers_among, self._selections) if self._selections else None
        if self._grouping is not None:
            return GroupedOrder(self._grouping, self._total_records, seed, index, count, select)
        return Order(self._total_records, seed, index, count, select, keeps_slices)

    @property
    def _endless_across_epochs(self) -> bool:
        return self._schedule.across_epochs and self._schedule.epochs is None

    @property
    def _is_random(self) -> bool:
        return self._shuffle or self._wants_rng or self._order_is_random

    @property
    def seed(self) -> int | None:
        """The seed, passed or drawn. None if no seed was passed and nothing is random."""
        return self._seed

    def with_seed(self: _Source, seed: int) -> _Source:
        """Return a source with the same records and another seed."""
        other = copy.copy(self)
        other._seed, other.seed_was_drawn = arguments.seed(self._owner, seed), False
        other._take_shard(self._order.shard_index, self._order.shard_count)
        return other

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`. With a transform, it is inferred from batch 0."""
        with self._spec_lock:
            if self._spec is None:
                self._spec = self._find_spec()
            return self._spec

    def _find_spec(self) -> Any:
        batch_dim = None if self._schedule.has_partial else self.batch_size
        if self._transform is None:
            return self.record_spec(batch_dim) if self._layout is None else self._laid_out().spec(batch_dim)
        return output_spec(self._owner, self._read(0), self.batch(0), batch_dim)

    @property
    def batch_size(self) -> int:
        """Records in a full batch."""
        return self._schedule.batch_size

    @property
    def num_records(self) -> int:
        """Records of this shard, in one epoch."""
        return self._order.num_records

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch. None if batches cross epochs and do not divide them evenly."""
        return self._schedule.batches_per_epoch

    @property
    def num_batches(self) -> int | None:
        """Batches over all epochs. None if endless."""
        return self._schedule.num_batches

    @property
    def epochs(self) -> int | None:
        """The number of passes over the records. None if endless."""
        return self._schedule.epochs

    def epoch_of(self, index: int) -> int:
        """Return the epoch, from 0, in which batch `index` starts. Raises IndexError if it is out of range."""
        return self._schedule.epoch_of(self._checked_index(index))

    def record_ids(self, index: int) -> np.ndarray[Any, Any]:
        """Return the numbers of the records in batch `index`: int64 [batch]. Raises IndexError if out of range."""
        # A copy, because the order keeps its numbers.
        return numbers_of(self._numbers_in(self._checked_index(index))).copy()

    def _numbers_in(self, index: int) -> np.ndarray[Any, Any] | slice:
        """Return the numbers of the records in a batch."""
        pieces = self._schedule.pieces(index)
        if len(pieces) == 1:
            return self._order.records(pieces[0])
        return np.concatenate([numbers_of(self._order.records(piece)) for piece in pieces])

    def batch(self, index: int) -> Any:
        """Return batch `index`, counted from 0 over all epochs. See `Source.batch`."""
        index = self._checked_index(index)
        batch = self._read(index)
        if self._transform is None:
            return batch
        random = (self._rng(index),) if self._wants_rng else ()
        return hand_over(self._owner, self._transform(batch, *random))

    def _rng(self, index: int) -> np.random.Generator:
        return batch_rng(self._seed or 0, self._order.shard_index, index)

    def _read(self, index: int) -> Any:
        numbers = self._numbers_in(index)
        if self._layout is None:
            return self._gathered(numbers)
        return self._laid_out().stack(self._read_single(numbers_of(numbers)), self._describe)

    def _checked_index(self, index: Any) -> int:
        return arguments.index_below(self._owner, index, self.num_batches)

    def shard(self: _Source, index: int, count: int) -> _Source:
        """Return the source of every `count`-th record, starting with record `index`. See `Source.shard`."""
        index, count = arguments.shard(self._owner, (index, count), self.num_records)
        part = copy.copy(self)
        part._take_shard(self._order.shard_index + self._order.shard_count * index, self._order.shard_count * count)
        return part

    def _options(self) -> Options:
        """The options, without the shard. The seed is None if it was drawn."""
        schedule = self._schedule
        return Options(
            schedule.batch_size,
            self._shuffle,
            None if self.seed_was_drawn else self._seed,
            schedule.epochs,
            None,
            schedule.drop_remainder,
            schedule.across_epochs,
            self._transform,
        )

    def _with_changes(self: _Source, changes: dict[str, Any]) -> _Source:
        options = self._options()._replace(**changes).checked(f"{self._owner}.with_options()")
        other = copy.copy(self)
        drawn = self._seed if self.seed_was_drawn else None
        other._set_options(options, secrets.randbits(31) if drawn is None else drawn)
        other._take_shard(self._order.shard_index, self._order.shard_count)
        return other

    def _recipe(self) -> str:
        """Say what the records are, for the fingerprint of what is made of them."""
        own = {key: value for key, value in self.fingerprint().items() if key not in _NOT_OF_RECORDS | {"records"}}
        listed = "".join(f", {key}={value!r}" for key, value in sorted(own.items()))
        return self._selected_from(f"{self._owner}({self._own_records}{listed})")

    def fingerprint(self) -> dict[str, int | str]:
        """Return what `Source.fingerprint` describes. `seed` is -1 if nothing is random.

        `file_list` is a hash of the names of the files, without folders, and their numbers of records, in order.
        """
        made: dict[str, int | str] = {
            "source": type(self).__name__,
            "num_records": self._total_records,
            "batch_size": self._schedule.batch_size,
            "shuffle": int(self._shuffle),
            "seed": -1 if self._seed is None or not self._is_random else self._seed,
            "drop_remainder": int(self._schedule.drop_remainder),
            "across_epochs": int(self._schedule.across_epochs),
            "shard_index": self._order.shard_index,
            "shard_count": self._order.shard_count,
        }
        if self._selections:
            made["records"] = self._selected_from(f"{self._owner}({self._own_records})")
        if self._grouping is not None:
            made["order"] = self._grouping.text
        if self._file_list:
            made["file_list"] = self._file_list
        return made

    @functools.cached_property
    def _file_list(self) -> str:
        files = self._read_files()
        return file_list(files) if files else ""

    def __repr__(self) -> str:
        shard = f", shard={self._order.shard_index, self._order.shard_count}" if self._order.shard_count > 1 else ""
        return f"{type(self).__name__}({self.num_records} records, batch_size={self.batch_size}{shard})"
