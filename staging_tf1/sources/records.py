"""`RecordSource`: the base class of sources whose records are numbered."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from staging_tf1 import arguments
from staging_tf1.arguments import INT64_MAX
from staging_tf1.errors import SpecError
from staging_tf1.sources.batches import Arrangement, Batches, Layout, Options
from staging_tf1.sources.composable import Composable
from staging_tf1.sources.content import Content
from staging_tf1.sources.files.file_list import ReadFile, file_list
from staging_tf1.sources.order import Piece, count_of, numbers_of
from staging_tf1.sources.selection import Chosen, Records
from staging_tf1.sources.spans import NO_SPANS, next_kept
from staging_tf1.sources.stacking import rows_of
from staging_tf1.sources.transform import Transform, hand_over, output_spec, own_batch
from staging_tf1.spec import component_name, flatten, flatten_with_paths

# Entries of a fingerprint that do not describe the records.
_NOT_OF_RECORDS = frozenset(
    "source num_records batch_size shuffle seed drop_remainder across_epochs epochs shard_index shard_count "
    "file_list records".split()
)
# How many of the first batches a transform may fail for before its error is raised as that of the source.
_MOST_TRIED = 5

_Source = TypeVar("_Source", bound="RecordSource")  # typing.Self came with Python 3.11


class RecordSource(Composable):
    """A source over numbered records.

    Provides order, shards, epochs, transforms, exact resume, and other sources of its records: `take`, `skip`,
    `select`, `split`, `without`, `pad`, `ragged`, `packed`, `by_length`, `weighted`, `balanced` and `with_options`. A
    subclass implements `record_spec` and `gather`. Its `__init__` must set what these need before it calls
    `super().__init__`.

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
        self._set_up(
            num_records, Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        )

    def _set_up(
        self, num_records: int, options: Options, layout: Layout | None = None, arrangement: Arrangement | None = None
    ) -> None:
        """Do what `__init__` does. For sources of this package, which may have an arrangement from the start."""
        owner = self._owner
        num_records = arguments.whole(owner, "num_records", num_records, 1, INT64_MAX, "records of all shards")
        options = options.checked(owner)
        options = dataclasses.replace(options, shard=arguments.shard(owner, options.shard, num_records))
        self._batching = Batches(owner, Chosen(num_records), options, layout=layout, arrangement=arrangement)

    def _rearranged(self: _Source, **changes: Any) -> _Source:
        # A copy, because the source of a user's subclass keeps its class and its attributes.
        other = copy.copy(self)
        other._batching = dataclasses.replace(self._batching, **changes)
        return other

    # Set by subclasses before `super().__init__`, and never changed.

    # Whether a function makes each batch, so that a record may have another size in another batch.
    _makes_batches = False
    # How deep combinations of sources are nested.
    _depth = 0
    # Whether each row of a gathered batch is a record; and what makes the rows, for messages.
    _rows_are_records = True
    _row_maker = "gather()"
    # The option with which `gather` may leave out records. Empty if it does not.
    _drops_records = ""
    # Whether `gather` does nothing but copy rows of arrays.
    _copies_rows = False

    @abc.abstractmethod
    def record_spec(self, batch_dim: int | None) -> Any:
        """Return the spec of what `gather` returns, a nest of `ArraySpec` whose shapes start with `batch_dim`.

        It may read a record for that.
        """

    @abc.abstractmethod
    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        """Return the given records, in this order, as a nest of new arrays with one row for each.

        `records` holds their numbers: an int64 array, or a slice with start, stop and step. Must be thread-safe. Arrays
        made by `aligned_empty` are fed without a copy.
        """

    def _read_single(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        """Read records one by one, by number. For sources whose records may differ in size."""
        return list(zip(numbers.tolist(), rows_of(self._gathered(numbers)), strict=True))

    def _describe(self, number: int) -> str:
        return f"{self._owner}: record {number}"

    def _read_files(self) -> list[ReadFile]:
        """Return the files that the source reads, in order. Empty if it does not know."""
        return []

    def _file_versions(self) -> str:
        """Return a text that differs if remote files are replaced. Empty if none is read."""
        return ""

    def _recipe(self) -> str:
        """Describe the records, for fingerprints of sources that are made of this one."""
        own = {key: value for key, value in self.fingerprint().items() if key not in _NOT_OF_RECORDS}
        listed = "".join(f", {key}={value!r}" for key, value in sorted(own.items()))
        chosen = self._batching.chosen
        return chosen.text(f"{self._owner}({chosen.own}{listed})")

    def _no_part(self) -> str:
        """Say why the source cannot be part of another one. Empty if it can."""
        if self._batching.arrangement is not None:
            return self._batching.arrangement.no_part
        if self._batching.shard[1] > 1:
            return "a shard: records are arranged before they are divided. Call shard() on the result."
        if self._batching.layout is not None:
            return f"which is {self._batching.layout.result}. Call {self._batching.layout.method} on the result."
        if self._batching.left_out:
            return "which leaves out records. Call without() on the result, with the numbers that they have there."
        if self._drops_records:
            return (
                f"which may leave out records ({self._drops_records}=True). Write the good records to a new file, or "
                f"store them with cached()."
            )
        return ""

    # What sources made of this one read. Places are those among the chosen records.

    def _fetch(self, places: Records) -> Any:
        return self._gathered(self._batching.chosen.numbers(places))

    def _single(self, places: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        """Read chosen records one by one: pairs of number and record, whose sizes may differ."""
        return self._read_single(numbers_of(self._batching.chosen.numbers(places)))

    def _single_in_order(self, start: int, stop: int) -> list[tuple[int, Any]]:
        """Read the records at places of the first epoch one by one, except those that are left out."""
        numbers = numbers_of(self._batching.kept(self._batching.order.records(Piece(0, start, stop))))
        return self._read_single(numbers) if len(numbers) else []

    def _gathered(self, numbers: Records) -> Any:
        batch = self.gather(numbers)
        if self._rows_are_records:
            self._check_rows(batch, count_of(numbers))
        return batch

    def _check_rows(self, batch: Any, count: int) -> None:
        rows = [len(leaf) for leaf in flatten(batch) if hasattr(leaf, "__len__")]
        if rows and self._drops_records:
            count = min(count, rows[0])
        if all(number == count for number in rows):
            return
        # With a row missing, the rows of one component would stand beside wrong rows of another.
        for path, leaf in flatten_with_paths(batch):
            if hasattr(leaf, "__len__") and len(leaf) != count:
                raise SpecError(
                    f"{self._owner}: {self._row_maker} returned {component_name(path)} with {len(leaf)} rows for "
                    f"{count} records. It must return one row for each record, in their order."
                )

    def _laid_out(self) -> Any:
        """How to lay out batches, according to the first record."""
        layout, total = self._batching.layout, self._batching.chosen.size
        assert layout is not None
        for place in range(total):
            # A bad record may be left out, here or while it is read.
            if not count_of(self._batching.kept(self._batching.chosen.numbers(np.array([place])))):
                continue
            for number, first in self._single(np.array([place])):
                return layout.planned(first, self._describe(number))
        raise SpecError(f"{self._owner}: all {total} records are bad.")

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        """The seed, passed or drawn. None if no seed was passed and nothing is random."""
        return self._batching.seed

    @property
    def seed_was_drawn(self) -> bool:  # type: ignore[override]
        """Whether the source drew its own seed. A restored run then uses the seed in the checkpoint."""
        return self._batching.seed_was_drawn

    def with_seed(self: _Source, seed: int) -> _Source:
        """Return a source with the same records and another seed."""
        return self._rearranged(
            options=dataclasses.replace(self._batching.options, seed=arguments.seed(self._owner, seed))
        )

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`. With a transform, it is inferred from the first batch that this does not fail for."""
        return self._batching.memo.get("spec", self._find_spec)

    def _find_spec(self) -> Any:
        batches = self._batching
        varies = batches.schedule.has_partial or self._drops_records or batches.left_out
        batch_dim = None if varies else self.batch_size
        if batches.options.transform is not None:
            return self._transformed_spec(batch_dim)
        if batches.layout is not None:
            return batches.memo.get("layout", self._laid_out).spec(batch_dim)
        return self.record_spec(batch_dim)

    def _transformed_spec(self, batch_dim: int | None) -> Any:
        failures: list[Exception] = []
        number = next_kept(self, NO_SPANS, 0, self.num_batches)
        while number is not None and len(failures) < _MOST_TRIED:
            try:
                return output_spec(self._owner, self._read_batch(number), self.batch(number), batch_dim)
            except Exception as error:
                # A session may be told to skip this batch. If not, it raises the error there.
                failures.append(error)
            number = next_kept(self, NO_SPANS, number + 1, self.num_batches)
        try:
            if failures:
                raise failures[0]
            raise ValueError(f"{self!r}: without() leaves no record in any batch. Leave out fewer records.")
        finally:
            # An error whose traceback holds itself would keep what the transform holds alive.
            failures.clear()

    @property
    def batch_size(self) -> int:
        """Records in a full batch."""
        return self._batching.options.batch_size

    @property
    def num_records(self) -> int:
        """Records of this shard, in one epoch."""
        return self._batching.order.num_records

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch. None if batches cross epochs and do not divide them evenly."""
        return self._batching.schedule.batches_per_epoch

    @property
    def num_batches(self) -> int | None:
        """Batches over all epochs. None if endless."""
        return self._batching.schedule.num_batches

    @property
    def epochs(self) -> int | None:
        """The number of passes over the records. None if endless."""
        return self._batching.schedule.epochs

    @property
    def transform_name(self) -> str:
        """The name of the function that transforms batches; "" if there is none."""
        transform = self._batching.options.transform
        named = getattr(transform, "__qualname__", None) or getattr(transform, "__name__", None)
        return "" if transform is None else str(named or type(transform).__qualname__)

    def content_sample(self) -> Content:
        """Return what identifies a sample of the records, by component; empty if they are not in memory."""
        return {}

    def epoch_of(self, index: int) -> int:
        """Return the epoch, from 0, in which batch `index` starts. Raises IndexError if it is out of range."""
        return self._batching.schedule.epoch_of(self._checked_index(index))

    def record_ids(self, index: int) -> np.ndarray[Any, Any]:
        """Return the numbers of the records in batch `index`: int64 [batch]. Raises IndexError if out of range."""
        # A copy, because the order keeps its numbers.
        return numbers_of(self._batching.numbers_in(self._checked_index(index))).copy()

    @property
    def leaves_out(self) -> bool:  # type: ignore[override]
        """Whether `without` leaves out records."""
        return bool(self._batching.left_out)

    def is_left_out(self, index: int) -> bool:
        return self._batching.is_left_out(self._checked_index(index))

    def batch(self, index: int) -> Any:
        index = self._checked_index(index)
        batch, batches = self._read_batch(index), self._batching
        if batches.options.transform is None:
            return batch
        random = (batches.rng(index),) if batches.wants_rng else ()
        return hand_over(self._owner, batches.options.transform(own_batch(batch), *random))

    def _read_batch(self, index: int) -> Any:
        batches = self._batching
        numbers = batches.numbers_in(index)
        if batches.left_out and not count_of(numbers):
            raise ValueError(
                f"{self._owner}: batch {index} has no record, because without() leaves out all of them. Iterate over "
                f"source.batches(), which passes it, or ask source.is_left_out({index}) first."
            )
        if batches.layout is None:
            return self._gathered(numbers)
        plan = batches.memo.get("layout", self._laid_out)
        return plan.stack(self._read_single(numbers_of(numbers)), self._describe)

    def _checked_index(self, index: Any) -> int:
        return arguments.index_below(self._owner, index, self.num_batches)

    def shard(self: _Source, index: int, count: int) -> _Source:
        index, count = arguments.shard(self._owner, (index, count), self.num_records)
        own_index, own_count = self._batching.shard
        whole = own_index + own_count * index, own_count * count
        return self._rearranged(options=dataclasses.replace(self._batching.options, shard=whole))

    def packed(self, length: int, lengths: ArrayLike, *, value: Any = 0) -> RecordSource:
        """Return the source of rows of one length that hold several records each, so that little is padded.

        Batches are tuples `(batch, segments, positions)`. `batch` has the components of the records, [batch, length].
        `segments` says which record of its row a value is from: 1, 2 and so on, and 0 for padding. `positions` counts
        the values of each record from 0. Both are int32 [batch, length]. With them, attention and recurrent models keep
        the records of a row apart.

        The rows are the records of the result: `num_records` and `batch_size` count them, and it shuffles them. Which
        records share a row depends on the lengths only, and is the same in each epoch. Among 4,096 consecutive records,
        the longest comes first, into the row where it leaves the least room. This takes about 3 us and 16 bytes for
        each record.

        Args:
          length: values in a row.
          lengths: the length of each record, at most `length`: the first dimension of all its components.
          value: what to pad with, as in `pad`.

        Raises:
          SpecError: (by `batch`) a record has another length, dtype or rank than expected.
          TypeError, ValueError: an argument is invalid; the source is a shard, padded, arranged, parsed in the graph or
            has a transform, or may leave out records.

        >>> from staging_tf1.sources import MapSource
        >>> sentences = MapSource([[3, 1, 4], [1, 5], [9, 2]], batch_size=2, epochs=1)
        >>> batch, segments, positions = sentences.packed(5, [3, 2, 2]).batch(0)
        >>> batch.tolist(), segments.tolist()
        ([[3, 1, 4, 1, 5], [9, 2, 0, 0, 0]], [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0]])
        >>> positions.tolist()
        [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]
        """
        # A subclass of this one, so it is imported late.
        from staging_tf1.sources.packed import Packed

        return Packed(self, length, lengths, value)

    def fingerprint(self) -> dict[str, int | str]:
        """Return what `Source.fingerprint` describes. `seed` is -1 if nothing is random.

        `file_list` is a hash of the names of the files, without folders, and their numbers of records, in order.
        `file_versions` is one of the sizes and versions (ETags) of those that are remote.
        """
        chosen = self._batching.chosen
        fingerprint = {"source": self._owner, **self._batching.fingerprint()}
        if chosen.selections:
            fingerprint["records"] = chosen.text(f"{self._owner}({chosen.own})")
        if self._file_list:
            fingerprint["file_list"] = self._file_list
        if versions := self._file_versions():
            fingerprint["file_versions"] = versions
        return fingerprint

    @functools.cached_property
    def _file_list(self) -> str:
        files = self._read_files()
        return file_list(files) if files else ""

    def __repr__(self) -> str:
        options = self._batching.options
        if not self._batching.is_random:
            options = dataclasses.replace(options, seed=None)
        defaults = Options(options.batch_size, shard=(0, 1))
        changed = [name for name, value in vars(options).items() if value != vars(defaults)[name]]
        listed = "".join(f", {name}={_shown(vars(options)[name])}" for name in changed)
        left_out = f", {self._batching.left_out.count} left out" if self._batching.left_out else ""
        return f"{type(self).__name__}({self.num_records} records, batch_size={self.batch_size}{listed}{left_out})"


def _shown(option: Any) -> str:
    return getattr(option, "__name__", "<function>") if callable(option) else repr(option)
