"""Where a run goes on that deals out the same records otherwise: to other towers, shards or batches.

All of them walk through one common order, so what was consumed is arithmetic. A new shard goes on behind its longest
run of whole batches that were consumed to the last record: records may come twice then, and none is left out. The
alternative, shards that begin within a batch, would have to carry their beginning through every later checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from staging_tf1.sources.order import Schedule

__all__ = ["BY_BATCHES", "Carried", "carried_over"]

# In the fingerprint of what is dealt out batch by batch in rotation: batch `k` of `n` goes to shard `k % n`.
BY_BATCHES = {"dealt": "batches"}

# What may differ while the common order stays the same.
_DEALING = {"batch_size", "drop_remainder", "across_epochs", "shard_index", "shard_count"}

# More shards than any cluster has processes.
_MOST_SHARDS = 1 << 16


@dataclass(frozen=True)
class Carried:
    """Positions in another dealing of the same order.

    Attributes:
      unit: what is counted, "records" or "batches".
      consumed: how many of them the old shards' batches held, all epochs together.
      positions: for each of the present towers, the number of the batch to go on with.
      repeated: how many of the consumed ones come again from there on. None is ever left out.
      presumed: whether all that holds only if the shards of other processes had reached the same position.
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
    """Carries the positions of `len(positions)` towers over to `towers` towers.

    Args:
      saved: the fingerprint of the source, before it was dealt out to the towers; see `Source.fingerprint`.
      positions: how many batches each tower's shard had delivered.
      present: the fingerprint of the source now.
      towers: how many there are now.
      epochs: how often the records are gone through, before and now; None without end. Matters at the end only.

    Returns:
      None if the two have no order in common, or a fingerprint does not tell how the records are dealt out.

    Raises:
      ArithmeticError, ValueError: `saved` is damaged.

    >>> fingerprint = ArraySource(np.arange(100), batch_size=4).fingerprint()
    >>> carried_over(fingerprint, [6], fingerprint, towers=2)
    Carried(unit='records', consumed=24, positions=(3, 3), repeated=0, presumed=False)
    >>> carried_over(fingerprint, [6], {**fingerprint, "batch_size": 10}, towers=2)
    Carried(unit='records', consumed=24, positions=(1, 1), repeated=4, presumed=False)
    """
    keys = {*saved, *present} - _DEALING
    if any(saved.get(key) != present.get(key) for key in keys):
        return None
    if present.get("dealt") == BY_BATCHES["dealt"]:
        return None if saved != present else _batches_carried_over(positions, towers)
    had, has = _dealing_of(saved, len(positions), epochs), _dealing_of(present, towers, epochs)
    if had is not None:
        _check_shards(had)
    return None if had is None or has is None else _records_carried_over(had, positions, has)


def _batches_carried_over(positions: Sequence[int], towers: int) -> Carried:
    # Batch k of tower i is batch k * n + i of the stream, which can only be read on from its first gap.
    first_gap = min(position * len(positions) + tower for tower, position in enumerate(positions))
    consumed = sum(positions)
    # Tower j goes on with its first batch that is not before the gap.
    following = tuple(-((tower - first_gap) // towers) for tower in range(towers))
    return Carried("batches", consumed, following, consumed - first_gap, presumed=False)


@dataclass(frozen=True)
class _Dealing:
    """How one run deals out records: shard `i` has the places i, i + shards, i + 2 * shards, ... of each epoch."""

    num_records: int
    batch_size: int
    epochs: int | None
    drop_remainder: bool
    across_epochs: bool
    # The source's own shard, which it deals out to its towers again.
    index: int
    count: int
    towers: int

    @property
    def shards(self) -> int:
        return self.count * self.towers

    def own(self) -> range:
        """This process's shards, one a tower."""
        return range(self.index, self.shards, self.count)

    def schedule(self, shard: int) -> Schedule:
        records = len(range(shard, self.num_records, self.shards))
        return Schedule(records, self.batch_size, self.epochs, self.drop_remainder, self.across_epochs)


def _dealing_of(fingerprint: Mapping[str, int | str], towers: int, epochs: int | None) -> _Dealing | None:
    if not {"num_records", *_DEALING} <= set(fingerprint):
        return None
    return _Dealing(
        int(fingerprint["num_records"]),
        int(fingerprint["batch_size"]),
        epochs,
        bool(fingerprint["drop_remainder"]),
        bool(fingerprint["across_epochs"]),
        int(fingerprint["shard_index"]),
        int(fingerprint["shard_count"]),
        towers,
    )


def _check_shards(had: _Dealing) -> None:
    # All shards are gone through, one by one: a damaged number could take hours.
    if not 0 <= had.index < had.count <= min(had.num_records, _MOST_SHARDS):
        raise ValueError(f"shard {had.index} of {had.count}, of {had.num_records} records")


def _records_carried_over(had: _Dealing, positions: Sequence[int], has: _Dealing) -> Carried:
    alone = (had.index, had.count) == (has.index, has.count)
    # With the same own shard, no record of another process is concerned; otherwise the cost is that of all together.
    before = had.own() if alone else range(had.shards)
    after = has.own() if alone or had.count == has.count else range(has.shards)
    # Where another process's tower was is not known: where ours was.
    reached = {shard: _reached(had.schedule(shard), positions[shard // had.count]) for shard in before}
    going_on = {shard: _batches_passed(had, reached, has, shard) for shard in after}
    return Carried(
        "records",
        sum(each.consumed() for each in reached.values()),
        tuple(going_on[shard] for shard in has.own()),
        sum(_repeated(had, reached, has, shard, batches) for shard, batches in going_on.items()),
        presumed=not alone,
    )


@dataclass(frozen=True)
class _Reached:
    """How far a shard has come: its first `batches` batches; None is all that its schedule has."""

    schedule: Schedule
    batches: int | None

    def next_record(self) -> tuple[int, int]:
        """The (epoch, place in the shard) with which it goes on; what a batch left out has been passed, too."""
        schedule, batches = self.schedule, self.batches or 0
        if not schedule.across_epochs:
            epoch, step = divmod(batches, _per_epoch(schedule))
            return epoch, step * schedule.batch_size
        last = schedule.num_batches
        if last is not None and batches >= last:
            return schedule.epochs or 0, 0
        return divmod(batches * schedule.batch_size, schedule.num_records)

    def delivered(self, epoch: int) -> int:
        """How many records of the shard's `epoch` those batches hold: always its first ones."""
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
        """How many records those batches hold, all epochs together."""
        schedule = self.schedule
        if schedule.across_epochs:
            upto = (self.batches or 0) * schedule.batch_size
            # Only the very last batch can be partial.
            return upto if schedule.epochs is None else min(upto, schedule.epochs * schedule.num_records)
        epoch, _ = self.next_record()
        return epoch * _Reached(schedule, None).delivered(0) + self.delivered(epoch)


def _reached(schedule: Schedule, batches: int) -> _Reached:
    # A smaller shard ends before ours does.
    last = schedule.num_batches
    return _Reached(schedule, batches if last is None else min(batches, last))


def _per_epoch(schedule: Schedule) -> int:
    batches = schedule.batches_per_epoch
    assert batches is not None, "batches that cross epochs have no number an epoch"
    return batches


def _batches_passed(had: _Dealing, reached: Mapping[int, _Reached], has: _Dealing, shard: int) -> int:
    """How many batches of the new `shard` hold nothing but what the old shards have passed."""
    schedule = has.schedule(shard)
    epoch, place = min(_first_to_come(had, old, each, has, shard) for old, each in _akin(had, reached, has, shard))
    if not schedule.across_epochs:
        per_epoch = _per_epoch(schedule)
        return epoch * per_epoch + min(place // schedule.batch_size, per_epoch)
    last = schedule.num_batches
    batches = (epoch * schedule.num_records + place) // schedule.batch_size
    return batches if last is None or (schedule.epochs is not None and epoch < schedule.epochs) else last


def _akin(had: _Dealing, reached: Mapping[int, _Reached], has: _Dealing, shard: int) -> Iterable[tuple[int, _Reached]]:
    """The old shards that have records in common with the new `shard`."""
    common = math.gcd(had.shards, has.shards)
    for old, each in reached.items():
        if (old - shard) % common == 0 and _first_common(had, old, has, shard) < had.num_records:
            yield old, each


def _first_common(had: _Dealing, old: int, has: _Dealing, shard: int) -> int:
    """The first place that the old shard and the new one share, by the Chinese remainder theorem."""
    common = math.gcd(had.shards, has.shards)
    modulus = had.shards // common
    steps = (old - shard) // common * pow(has.shards // common, -1, modulus) % modulus
    return shard + has.shards * steps


def _first_to_come(had: _Dealing, old: int, each: _Reached, has: _Dealing, shard: int) -> tuple[int, int]:
    """The (epoch, place in the new shard) of the first record of both shards that has not been passed."""
    first, every = _first_common(had, old, has, shard), math.lcm(had.shards, has.shards)
    epoch, place = each.next_record()
    lowest = old + had.shards * place
    following = first + max(0, -((first - lowest) // every)) * every
    # What the new shard leaves out of each epoch it need not wait for.
    schedule = has.schedule(shard)
    kept = schedule.num_records if schedule.across_epochs else _per_epoch(schedule) * schedule.batch_size
    if following < min(had.num_records, shard + has.shards * kept):
        return epoch, (following - shard) // has.shards
    if first < shard + has.shards * kept:
        return epoch + 1, (first - shard) // has.shards
    return _NEVER


# Later than any record: what is left out of every epoch.
_NEVER = (1 << 63, 0)


def _repeated(had: _Dealing, reached: Mapping[int, _Reached], has: _Dealing, shard: int, batches: int) -> int:
    """How many records that old shards delivered the new `shard` delivers from batch number `batches` on."""
    schedule = has.schedule(shard)
    begun, all_of_it = _Reached(schedule, batches), _Reached(schedule, None)
    begins = begun.next_record()[0]
    repeated = 0
    for old, each in _akin(had, reached, has, shard):
        first, every = _first_common(had, old, has, shard), math.lcm(had.shards, has.shards)

        def twice(epoch: int, old: int = old, each: _Reached = each, first: int = first, every: int = every) -> int:
            lowest = shard + has.shards * begun.delivered(epoch)
            beyond = min(old + had.shards * each.delivered(epoch), shard + has.shards * all_of_it.delivered(epoch))
            return max(0, _upto(beyond, first, every) - _upto(lowest, first, every))

        ends = each.next_record()[0]
        # Every other epoch between is like the one after the first.
        special = {epoch for epoch in (begins, ends, (schedule.epochs or 0) - 1) if begins <= epoch <= ends}
        alike = [epoch for epoch in range(begins, min(ends, begins + 3) + 1) if epoch not in special]
        repeated += sum(map(twice, special))
        if alike:
            repeated += (ends - begins + 1 - len(special)) * twice(alike[0])
    return repeated


def _upto(beyond: int, first: int, every: int) -> int:
    """How many of first, first + every, ... are less than `beyond`."""
    return max(0, -((first - beyond) // every))
