"""The methods of `RecordSource` that select, arrange or lay out its records otherwise."""

from __future__ import annotations

import abc
import dataclasses
import numbers
from typing import Any, TypeVar

from numpy.typing import ArrayLike

from staging_tf1 import arguments
from staging_tf1.arguments import INT32_MAX, INT64_MAX, UNSET
from staging_tf1.sources.base import Source, check_parsed
from staging_tf1.sources.batches import Batches, draw_seed
from staging_tf1.sources.lengths import checked_lengths, grouped
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.padding import Padding
from staging_tf1.sources.ragged_rows import RaggedRows
from staging_tf1.sources.selection import Selection, hashed_keys, selected, split_by_key, split_evenly, stretch
from staging_tf1.sources.spans import checked_spans
from staging_tf1.sources.transform import Transform
from staging_tf1.sources.weighted import balancing, sampling

_Source = TypeVar("_Source", bound="Composable")  # typing.Self came with Python 3.11


class Composable(Source):
    """Makes sources of some of the records, or of the same records in other batches.

    `take`, `skip` and `split` count records in the order in which the source has them: before any shuffle and before
    shards. So the parts of a split never share a record, in no epoch, and each part is shuffled as a whole.
    """

    # How the records become batches. Immutable.
    _batching: Batches

    @abc.abstractmethod
    def _rearranged(self: _Source, **changes: Any) -> _Source:
        """Return the source whose `Batches` have these changes."""

    @property
    def _owner(self) -> str:
        return type(self).__name__

    @property
    def _numbers_end(self) -> int:
        """All numbers of records are below it."""
        return self._batching.chosen.own

    def take(self: _Source, count: int) -> _Source:
        """Return the source of the first `count` records, or of all if there are fewer, as in `tf.data`.

        >>> ArraySource(np.arange(10), batch_size=4, epochs=1).take(5).batch(1)
        array([4])
        """
        total = self._check_whole("take()")
        count = arguments.whole("take()", "count", count, 1, INT64_MAX, "records")
        return self._narrowed(stretch(0, min(count, total), f"take({count})"))

    def skip(self: _Source, count: int) -> _Source:
        """Return the source of all records but the first `count`.

        Raises ValueError if none is left.

        >>> ArraySource(np.arange(10), batch_size=4, epochs=1).skip(5).batch(1)
        array([9])
        """
        total = self._check_whole("skip()")
        count = arguments.whole("skip()", "count", count, 0, total - 1, f"it leaves at least one of {total} records")
        return self._narrowed(stretch(count, total - count, f"skip({count})"))

    def select(self: _Source, records: Any) -> _Source:
        """Return the source of some of the records.

        Args:
          records: a mask with one boolean for each record, or the numbers of records, in the order in which the result
            has them. A number may come twice. 4 bytes of memory for each.

        Raises:
          TypeError, ValueError: `records` is invalid, or selects none.

        >>> numbers = ArraySource(np.arange(10), batch_size=4, epochs=1)
        >>> numbers.select([9, 2, 3]).batch(0), numbers.select(np.arange(10) % 3 == 0).batch(0)
        (array([9, 2, 3]), array([0, 3, 6, 9]))
        """
        return self._narrowed(selected("select()", records, self._check_whole("select()")))

    def without(self: _Source, records: Any) -> _Source:
        """Return the source that leaves some records out, in all epochs. All others keep their places.

        So each batch has the records that it had, less those that are left out, and a position in a checkpoint stays
        valid: a restored run goes on with fewer records. A batch of which no record is left has no step. `num_records`
        and `num_batches` count places, and stay.

        Args:
          records: their numbers, as in `record_ids`: an array, or a list of numbers and ranges. Those of other parts of
            a split change nothing. In a combination, leave out records of the result.

        Raises:
          TypeError, ValueError: `records` is invalid, or none is left.

        >>> source = ArraySource(np.arange(10), batch_size=4, epochs=1)
        >>> numbers = source.without([5, range(8, 10)])
        >>> [batch.tolist() for batch in numbers]
        [[0, 1, 2, 3], [4, 6, 7]]
        >>> numbers.fingerprint()["without"]
        '5, 8-9'
        """
        batches, chosen = self._batching, self._batching.chosen
        left_out = batches.left_out | checked_spans("without()", "records", records, self._numbers_end, "record")
        is_none_left = left_out.count == self._numbers_end
        if chosen.selections and left_out.count >= chosen.size:
            is_none_left = bool(left_out.has(numbers_of(chosen.numbers(slice(0, chosen.size, 1)))).all())
        if is_none_left:
            raise ValueError(f"without() leaves none of {chosen.size} records, expected at least one.")
        return self._rearranged(left_out=left_out)

    def split(self: _Source, fraction: float, seed: int, *, key: ArrayLike | None = None) -> tuple[_Source, _Source]:
        """Divide the records into two sources, such as training and validation.

        Both keep the options of this source. `with_options` changes them: a validation source often has one epoch, no
        shuffle and no transform.

        Args:
          fraction: the first source's part of the records, between 0 and 1. Its size is exact, rounded to a record,
            unless `key` is given.
          seed: from 0 to 2**63 - 1. Another seed makes another split.
          key: one integer or string for each record. Records with the same key go to the same source, and a key always
            goes to the same one: it stays there when records are added. The sizes are then approximate.

        Raises:
          TypeError, ValueError: an argument is invalid, or a source would have no record.

        >>> source = ArraySource(np.arange(10), batch_size=8, epochs=1)
        >>> train, validation = source.split(0.8, seed=1)
        >>> train.num_records, validation.num_records
        (8, 2)
        """
        total = self._check_whole("split()")
        if isinstance(fraction, bool) or not isinstance(fraction, numbers.Real):
            arguments.refuse("split()", "fraction", fraction, "a number between 0 and 1")
        if not 0 < fraction < 1:
            arguments.refuse("split()", "fraction", fraction, "a number between 0 and 1", ValueError)
        seed = arguments.seed("split()", seed)
        text = f"split({float(fraction)!r}, seed={seed})"
        if key is not None:
            parts = split_by_key(hashed_keys("split()", key, total), float(fraction), seed, text)
        else:
            parts = _split(total, round(total * float(fraction)), seed, text)
        if not all(part.size for part in parts):
            raise ValueError(
                f"{text} leaves {parts[0].size} and {parts[1].size} of {total} records, expected at least one in each "
                f"part. Use more records{' or keys' if key is not None else ''}, or another fraction."
            )
        return self._narrowed(parts[0]), self._narrowed(parts[1])

    def pad(self: _Source, to: Any = None, *, value: Any = 0, mask: bool = False) -> _Source:
        """Return the source that pads its records to a common size, instead of requiring one size.

        For records that are read one by one: with the `parse_fn` of record files, or a `MapSource`.

        Args:
          to: the size of the first dimension of each component. None is the longest of the batch. A tuple has one entry
            per dimension. A dict gives these by component; all others must have one size.
          value: what to pad with, also a dict by component. Strings are padded with empty strings unless it is one.
          mask: deliver pairs `(batch, mask)`. `mask` has the structure of the batch, with booleans that are True for
            values of the record. It has the dimensions up to the last one that varies: [batch, size] for records
            [size, 64], and [batch] for a component of one size.

        Raises:
          SpecError: (by `batch`) a record is longer than `to`, or has another dtype or rank than the first.
          TypeError, ValueError: an argument is invalid.

        >>> from staging_tf1.sources import MapSource
        >>> sentences = MapSource([[3, 1, 4], [1, 5]], batch_size=2, epochs=1)
        >>> sentences.pad(mask=True).batch(0)
        (array([[3, 1, 4],
               [1, 5, 0]]), array([[ True,  True,  True],
               [ True,  True, False]]))
        """
        return self._arranged("pad()", layout=Padding(to, value, mask))

    def ragged(self: _Source, rank: Any = 1) -> _Source:
        """Return the source whose batches keep the size of each record, without padding.

        Components are `RaggedValue`s then, for which `staged()` returns `tf.RaggedTensor`s. Single values are stacked.
        For records that are read one by one: with the `parse_fn` of record files, or a `MapSource`.

        Args:
          rank: how many dimensions vary, from the first one of a record on: 1 for a list of words, 2 for a list of
            sentences. A dict gives it by component; all others must have one size.

        Raises:
          SpecError: (by `batch`) a record has another dtype or rank than the first, or another size in a dimension that
            does not vary.
          TypeError, ValueError: an argument is invalid.

        >>> from staging_tf1.sources import MapSource
        >>> sentences = [{"words": [3, 1, 4], "label": 0}, {"words": [1, 5], "label": 1}]
        >>> batch = MapSource(sentences, batch_size=2, epochs=1).ragged().batch(0)
        >>> batch["words"].to_list(), batch["label"]
        ([[3, 1, 4], [1, 5]], array([0, 1]))
        """
        return self._arranged("ragged()", layout=RaggedRows(rank))

    def by_length(self: _Source, lengths: ArrayLike, *, group: int | None = None, block: int = 50) -> _Source:
        """Return the source whose batches hold records of similar length, so that `pad` adds little.

        Cuts the order of each epoch, shuffled or not, into blocks; sorts each block by length; cuts it into groups; and
        shuffles the groups of the block, unless the source is not shuffled. Each shard computes whole blocks.

        Args:
          lengths: the length of each record. It is copied: 2 bytes a record, or 8 if one is 65,536 or more.
          group: how many consecutive records of all shards have similar lengths. Use the records of a step: batch size
            times towers times workers. The default is the batch size.
          block: how many groups are sorted together. More save padding; fewer shuffle better. See docs/sources.md.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        array = checked_lengths("by_length()", lengths, self._check_unarranged("by_length()"))
        group = (
            self.batch_size
            if group is None
            else arguments.whole("by_length()", "group", group, 1, INT32_MAX, "records")
        )
        block = arguments.whole("by_length()", "block", block, 1, INT32_MAX, "groups")
        return self._arranged("by_length()", arrangement=grouped(array, group, block))

    def weighted(
        self: _Source,
        weights: ArrayLike,
        *,
        num_records: int | None = None,
        seed: int | None = None,
    ) -> _Source:
        """Return the source that draws its records at random, with replacement, in proportion to their weights.

        Each place of each epoch draws by itself, whatever `shuffle` is. So a record may come several times in an epoch,
        or not at all. Shards divide the draws.

        Args:
          weights: a number from 0 for each record. Only their proportions matter, and a record with 0 is never drawn.
            8 bytes of memory for each.
          num_records: how many records an epoch draws. The default is as many as there are.
          seed: from 0 to 2**63 - 1. None takes the source's seed, or draws one.

        Raises:
          TypeError, ValueError: an argument is invalid; the source is a shard, a mixture or arranged by length.

        >>> numbers = ArraySource(np.arange(4), batch_size=8, epochs=1)
        >>> numbers.weighted([0, 1, 1, 6], num_records=8, seed=1).batch(0)
        array([1, 3, 3, 3, 2, 2, 1, 3])
        """
        return self._sampled("weighted()", weights, num_records, seed)

    def balanced(
        self: _Source,
        labels: ArrayLike,
        *,
        num_records: int | None = None,
        seed: int | None = None,
    ) -> _Source:
        """Return the source that draws its records at random, with replacement, each label as often as any other.

        This is `weighted` with a weight of 1 / n for each of the n records with the same label.

        Args:
          labels: one integer or string for each record.
          num_records, seed: as in `weighted`.

        Raises:
          TypeError, ValueError: as in `weighted`.

        >>> labels = ["common"] * 9 + ["rare"]
        >>> source = ArraySource(np.arange(10), batch_size=1000, epochs=1)
        >>> drawn = source.balanced(labels, num_records=1000, seed=1)
        >>> int((drawn.batch(0) == 9).sum())
        500
        """
        return self._sampled("balanced()", labels, num_records, seed)

    def _sampled(self: _Source, caller: str, values: Any, num_records: int | None, seed: int | None) -> _Source:
        total = self._check_unarranged(caller)
        weights = balancing(caller, values, total) if caller == "balanced()" else values
        options = self._batching.options
        if seed is not None:
            options = dataclasses.replace(options, seed=arguments.seed(caller, seed))
        return self._arranged(caller, arrangement=sampling(caller, weights, total, num_records), options=options)

    def with_options(
        self: _Source,
        *,
        batch_size: int = UNSET,
        shuffle: bool = UNSET,
        seed: int | None = UNSET,
        epochs: int | None = UNSET,
        drop_remainder: bool = UNSET,
        across_epochs: bool = UNSET,
        transform: Transform | None = UNSET,
    ) -> _Source:
        """Return the source of the same records with some options changed. They are those of `RecordSource`."""
        changes = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "epochs": epochs,
            "drop_remainder": drop_remainder,
            "across_epochs": across_epochs,
            "transform": transform,
        }
        return self._with_options({name: value for name, value in changes.items() if value is not UNSET})

    def _with_options(self: _Source, changes: dict[str, Any]) -> _Source:
        batches = self._batching
        options = dataclasses.replace(batches.options, **changes).checked(f"{self._owner}.with_options()")
        # A seed that is in use stays.
        drawn = batches.drawn_seed if batches.seed_was_drawn else draw_seed()
        return self._rearranged(options=options, drawn_seed=drawn)

    def _check_whole(self, caller: str) -> int:
        """Return the number of records, or raise if `caller`, which chooses records, comes too late."""
        arrangement = self._batching.arrangement
        if arrangement is not None:
            raise ValueError(f"{caller} comes after {arrangement.maker}, {arrangement.too_late.format(caller=caller)}")
        if self._batching.shard[1] > 1:
            raise ValueError(
                f"{caller} got {self!r}, a shard: records are counted before they are divided. Call {caller} first, "
                f"and shard() on its result."
            )
        return self._batching.chosen.size

    def _check_unarranged(self, caller: str) -> int:
        """Return the number of records, or raise if `caller`, which arranges them, comes after another arrangement."""
        if self._batching.arrangement is not None:
            raise ValueError(
                f"{caller} comes after {self._batching.arrangement.maker}, but only one of by_length(), weighted(), "
                f"balanced() and mix() can arrange the records."
            )
        return self._check_whole(caller)

    def _narrowed(self: _Source, selection: Selection) -> _Source:
        return self._rearranged(chosen=self._batching.chosen.only(selection))

    def _arranged(self: _Source, caller: str, **changes: Any) -> _Source:
        check_parsed(caller, self)
        return self._rearranged(**changes)


def _split(total: int, first: int, seed: int, text: str) -> tuple[Selection, Selection]:
    if not 0 < first < total:
        return stretch(0, first, text), stretch(first, total - first, text)
    if total * min(first, total - first) > INT64_MAX:
        raise ValueError(f"{text} got {total} records, more than it can count. Divide them with take() and skip().")
    return split_evenly(total, first, seed, text)
