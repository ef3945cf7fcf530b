"""Maps a saved position to other towers, shards or batch sizes.

All layouts follow one common order, so the consumed records can be computed from the saved position. A new shard
resumes after its longest run of whole batches in which every record was consumed. Records may therefore be read twice,
but none is skipped. Shards that start within a batch would avoid this, but would have to keep their offset in every
later checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from staging_tf1.sources.order import Schedule

# Part of the fingerprint of sources that distribute whole batches in rotation: batch `k` of `n` goes to shard `k % n`.
BY_BATCHES = {"dealt": "batches"}

# The "source" in the fingerprint of a dataset of the tf.data service, which has another order in each pass.
DATA_SERVICE = "tf.data service"

# Fingerprint entries that may differ while the common order stays the same.
_SHARD_KEYS = {"shard_index", "shard_count"}
_LAYOUT_KEYS = {"batch_size", "drop_remainder", "across_epochs", *_SHARD_KEYS}

# The number of epochs, an entry only where the last one alone may end with a partial batch.
_EPOCHS = "epochs"

# Entries that say which batches and records are left out. The others keep their places, so positions stay valid.
LEFT_OUT = ("skip", "without")

# The seed that a `map_fn` takes, an entry only where the order of the records does not depend on it.
MAP_SEED = "map_fn_seed"

# More shards than any cluster has processes.
_MOST_SHARDS = 1 << 16


@dataclass(frozen=True)
class Carried:
    """A saved position, mapped to another layout of the same order.

    Attributes:
      unit: what is counted, "records" or "batches".
      consumed: how many units the saved run consumed, over all epochs.
      positions: for each tower of the new run, the index of the batch to resume at.
      repeated: how many consumed units are read again. None is ever skipped.
      presumed: whether the result assumes that other processes had reached the same position.
    """

    unit: str
    consumed: int
    positions: tuple[int, ...]
    repeated: int
    presumed: bool


def carried_over(
    saved: Mapping[str, int | str],
    positions: Sequence[int],
    present: Mapping[str, int | str],
    towers: int,
    *,
    epochs: int | None = None,
) -> Carried | None:
    """Map the positions of `len(positions)` towers to positions of `towers` towers.

    `saved` and `present` are the fingerprints of the source (see `Source.fingerprint`) in the saved and the new run,
    before it was divided among towers. `positions` are the batches that each tower's shard had delivered. `epochs`, of
    fingerprints that have none, is the same in both runs, and matters only at the end of the data. Returns None if the
    two runs have no common order, or if a fingerprint does not describe how records are distributed.

    Raises:
      ArithmeticError, ValueError: `saved` is damaged.

    >>> fingerprint = ArraySource(np.arange(100), batch_size=4).fingerprint()
    >>> carried_over(fingerprint, [6], fingerprint, towers=2)
    Carried(unit='records', consumed=24, positions=(3, 3), repeated=0, presumed=False)
    >>> carried_over(fingerprint, [6], {**fingerprint, "batch_size": 10}, towers=2)
    Carried(unit='records', consumed=24, positions=(1, 1), repeated=4, presumed=False)
    """
    saved, present = order_of(completed(saved, present, positions)), order_of(present)
    keys = {*saved, *present} - _LAYOUT_KEYS - {_EPOCHS}
    if any(saved.get(key) != present.get(key) for key in keys):
        return None
    if present.get("dealt") == BY_BATCHES["dealt"]:
        return None if saved != present else _batches_carried_over(positions, towers)
    old, new = _layout_of(saved, len(positions), epochs), _layout_of(present, towers, epochs)
    if old is not None:
        _check_shards(old)
    return None if old is None or new is None else _records_carried_over(old, positions, new)


def completed(
    saved: Mapping[str, int | str], present: Mapping[str, int | str], positions: Sequence[int]
) -> dict[str, int | str]:
    """Return the saved fingerprint with the present value of what does not matter.

    The number of epochs matters only at `positions` behind the partial batch at their end: with more epochs, it is a
    full one. It also limits what other shards are presumed to have delivered.
    """
    # Only remote files have versions, and only some map_fn take a seed.
    later = ["file_versions", MAP_SEED]
    missing = {*later} - {*present}
    if {*saved} >= _LAYOUT_KEYS:
        later.append(_EPOCHS)
        is_same_shard = all(saved[key] == present.get(key) for key in _SHARD_KEYS)
        if is_same_shard and not _has_ended_partially(saved, positions):
            missing.add(_EPOCHS)
    kept = {key: value for key, value in saved.items() if key not in missing}
    return {**{key: present[key] for key in later if key in present}, **kept}


def _has_ended_partially(saved: Mapping[str, int | str], positions: Sequence[int]) -> bool:
    layout = _layout_of(saved, len(positions), None)
    if layout is None or layout.epochs is None or not layout.across_epochs:
        return False
    _check_shards(layout)
    return any(
        schedule.has_partial and batches >= (schedule.num_batches or 0)
        for schedule, batches in zip(map(layout.schedule, layout.own()), positions, strict=True)
    )


def order_of(fingerprint: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return the fingerprint of the same order in which nothing is left out."""
    return {key: value for key, value in fingerprint.items() if key not in LEFT_OUT}


def _batches_carried_over(positions: Sequence[int], towers: int) -> Carried:
    # Batch k of tower i is batch k * n + i of the stream, which can only be resumed at its first gap.
    first_gap = min(position * len(positions) + tower for tower, position in enumerate(positions))
    consumed = sum(positions)
    # Tower j resumes at its first batch at or after the gap.
    following = tuple(-((tower - first_gap) // towers) for tower in range(towers))
    return Carried("batches", consumed, following, consumed - first_gap, presumed=False)


@dataclass(frozen=True)
class _Layout:
    """How a run distributes records: shard `i` has the places i, i + shards, i + 2 * shards, ... of each epoch."""

    num_records: int
    batch_size: int
    epochs: int | None
    drop_remainder: bool
    across_epochs: bool
    # The shard of the source itself, which is divided again among the towers.
    index: int
    count: int
    towers: int

    @property
    def shards(self) -> int:
        return self.count * self.towers

    def own(self) -> range:
        """The shards of this process, one per tower."""
        return range(self.index, self.shards, self.count)

    def schedule(self, shard: int) -> Schedule:
        records = len(range(shard, self.num_records, self.shards))
        return Schedule(records, self.batch_size, self.epochs, self.drop_remainder, self.across_epochs)


def _layout_of(fingerprint: Mapping[str, int | str], towers: int, epochs: int | None) -> _Layout | None:
    if not {"num_records", *_LAYOUT_KEYS} <= set(fingerprint):
        return None
    return _Layout(
        int(fingerprint["num_records"]),
        int(fingerprint["batch_size"]),
        int(fingerprint[_EPOCHS]) if _EPOCHS in fingerprint else epochs,
        bool(fingerprint["drop_remainder"]),
        bool(fingerprint["across_epochs"]),
        int(fingerprint["shard_index"]),
        int(fingerprint["shard_count"]),
        towers,
    )


def _check_shards(old: _Layout) -> None:
    # The shards are visited one by one: a damaged number could take hours.
    if not 0 <= old.index < old.count <= min(old.num_records, _MOST_SHARDS):
        raise ValueError(f"shard {old.index} of {old.count}, of {old.num_records} records")


def _records_carried_over(old: _Layout, positions: Sequence[int], new: _Layout) -> Carried:
    same_shard = (old.index, old.count) == (new.index, new.count)
    # The same shard as before: count only its records. Otherwise count the records of all shards.
    old_shards = old.own() if same_shard else range(old.shards)
    new_shards = new.own() if same_shard or old.count == new.count else range(new.shards)
    # The positions of other processes are unknown. Assume that they are ours.
    progress = {shard: _progress(old.schedule(shard), positions[shard // old.count]) for shard in old_shards}
    change = _Change(old, progress, new)
    starts = {shard: change.first_batch(shard) for shard in new_shards}
    return Carried(
        "records",
        sum(shard.consumed() for shard in progress.values()),
        tuple(starts[shard] for shard in new.own()),
        sum(change.repeated(shard, batches) for shard, batches in starts.items()),
        presumed=not same_shard,
    )


@dataclass(frozen=True)
class _Progress:
    """The progress of a shard: its first `batches` batches. None stands for all batches of its schedule."""

    schedule: Schedule
    batches: int | None

    def next_record(self) -> tuple[int, int]:
        """The (epoch, place in the shard) of the next record. Records in skipped partial batches count as passed."""
        schedule, batches = self.schedule, self.batches or 0
        if not schedule.across_epochs:
            epoch, step = divmod(batches, _per_epoch(schedule))
            return epoch, step * schedule.batch_size
        last = schedule.num_batches
        if last is not None and batches >= last:
            return schedule.epochs or 0, 0
        return divmod(batches * schedule.batch_size, schedule.num_records)

    def delivered(self, epoch: int) -> int:
        """How many records of one epoch the batches hold. They are always the first records of the epoch."""
        schedule = self.schedule
        if schedule.epochs is not None and epoch >= schedule.epochs:
            return 0
        batches = schedule.num_batches if self.batches is None else self.batches
        if schedule.across_epochs:
            upto = math.inf if batches is None else batches * schedule.batch_size - epoch * schedule.num_records
            return int(max(0, min(upto, schedule.num_records)))
        per_epoch = _per_epoch(schedule)
        here = per_epoch if batches is None else max(0, min(batches - epoch * per_epoch, per_epoch))
        return min(here * schedule.batch_size, schedule.num_records)

    def consumed(self) -> int:
        """How many records the batches hold, over all epochs."""
        schedule = self.schedule
        if schedule.across_epochs:
            upto = (self.batches or 0) * schedule.batch_size
            # Only the last batch of all epochs can be partial.
            return upto if schedule.epochs is None else min(upto, schedule.epochs * schedule.num_records)
        epoch, _ = self.next_record()
        return epoch * _Progress(schedule, None).delivered(0) + self.delivered(epoch)


def _progress(schedule: Schedule, batches: int) -> _Progress:
    # A smaller shard may have fewer batches than ours.
    last = schedule.num_batches
    return _Progress(schedule, batches if last is None else min(batches, last))


def _per_epoch(schedule: Schedule) -> int:
    batches = schedule.batches_per_epoch
    assert batches is not None, "batches that cross epochs have no number per epoch"
    return batches


# Later than any record. Used for records that every epoch skips.
_NEVER = (1 << 63, 0)


@dataclass(frozen=True)
class _Change:
    """A change from the `old` to the `new` layout, with the progress of the old shards, by shard."""

    old: _Layout
    progress: Mapping[int, _Progress]
    new: _Layout

    def first_batch(self, shard: int) -> int:
        """The first batch of the new `shard` with a record that was not passed."""
        schedule = self.new.schedule(shard)
        epoch, place = min(self._next_common(old, progress, shard) for old, progress in self._overlapping(shard))
        if not schedule.across_epochs:
            per_epoch = _per_epoch(schedule)
            return epoch * per_epoch + min(place // schedule.batch_size, per_epoch)
        last = schedule.num_batches
        batches = (epoch * schedule.num_records + place) // schedule.batch_size
        return batches if last is None or (schedule.epochs is not None and epoch < schedule.epochs) else last

    def repeated(self, shard: int, batches: int) -> int:
        """How many delivered records the new `shard` repeats from `batches` on."""
        first_epoch = _Progress(self.new.schedule(shard), batches).next_record()[0]
        last_epochs = {(layout.epochs or 0) - 1 for layout in (self.old, self.new)}
        total = 0
        for old, progress in self._overlapping(shard):
            final = progress.next_record()[0]
            # All epochs in between are like the second one.
            special = {epoch for epoch in {first_epoch, final, *last_epochs} if first_epoch <= epoch <= final}
            alike = [epoch for epoch in range(first_epoch, min(final, first_epoch + 4) + 1) if epoch not in special]
            total += sum(self._repeated_in(epoch, shard, batches, old) for epoch in special)
            if alike:
                total += (final - first_epoch + 1 - len(special)) * self._repeated_in(alike[0], shard, batches, old)
        return total

    def _repeated_in(self, epoch: int, shard: int, batches: int, old: int) -> int:
        """The part of `repeated` that falls into one epoch and one old shard."""
        first, every = self._first_common(old, shard), math.lcm(self.old.shards, self.new.shards)
        schedule = self.new.schedule(shard)
        begun, complete = _Progress(schedule, batches), _Progress(schedule, None)
        start = shard + self.new.shards * begun.delivered(epoch)
        stop = min(
            old + self.old.shards * self.progress[old].delivered(epoch),
            shard + self.new.shards * complete.delivered(epoch),
        )
        return max(0, _count_below(stop, first, every) - _count_below(start, first, every))

    def _overlapping(self, shard: int) -> Iterable[tuple[int, _Progress]]:
        """The old shards that have records in common with the new `shard`."""
        common = math.gcd(self.old.shards, self.new.shards)
        for old, progress in self.progress.items():
            if (old - shard) % common == 0 and self._first_common(old, shard) < self.old.num_records:
                yield old, progress

    def _first_common(self, old: int, shard: int) -> int:
        """The first place common to an old shard and the new one, by the Chinese remainder theorem."""
        common = math.gcd(self.old.shards, self.new.shards)
        modulus = self.old.shards // common
        steps = (old - shard) // common * pow(self.new.shards // common, -1, modulus) % modulus
        return shard + self.new.shards * steps

    def _next_common(self, old: int, progress: _Progress, shard: int) -> tuple[int, int]:
        """The (epoch, place in the new shard) of the first common record that the old shard has not passed."""
        first, every = self._first_common(old, shard), math.lcm(self.old.shards, self.new.shards)
        epoch, place = progress.next_record()
        lowest = old + self.old.shards * place
        following = first + max(0, -((first - lowest) // every)) * every
        # Records that the new shard skips in each epoch do not hold it back.
        schedule = self.new.schedule(shard)
        kept = schedule.num_records if schedule.across_epochs else _per_epoch(schedule) * schedule.batch_size
        if following < min(self.old.num_records, shard + self.new.shards * kept):
            return epoch, (following - shard) // self.new.shards
        if first < shard + self.new.shards * kept:
            return epoch + 1, (first - shard) // self.new.shards
        return _NEVER


def _count_below(stop: int, first: int, every: int) -> int:
    """How many of first, first + every, ... are less than `stop`."""
    return max(0, -((first - stop) // every))
