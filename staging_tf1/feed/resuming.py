"""Where a session's feeding begins: at the position that its checkpoint holds, in the same order as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.errors import ResumeError
from staging_tf1.feed.lane import Lane
from staging_tf1.graph.pipeline import Pipeline
from staging_tf1.sources import Source, StreamSource
from staging_tf1.sources.reshard import Carried, carried_over

# What to do when a checkpoint was saved with another source.
RESUME_MODES = ("exact", "ignore", "restart")


def resume_points(
    feeds: Sequence[tuple[Pipeline | None, tuple[Lane, ...]]], session: Any
) -> list[list[tuple[Lane, int]]]:
    """For each feed its lanes, with the source as it was when the checkpoint was saved, and the batch to begin with.

    TensorFlow prepares each new set of ops by going through the whole graph, so all feeds share the same few runs.

    Raises:
      ResumeError: the checkpoint was saved with another source, or for other shards at which records would come
        twice; the message has both values and the cost.
      CheckpointError: what it holds cannot be a position.
    """
    starts = [_Start(pipeline, lanes) for pipeline, lanes in feeds]
    placed = [start for start in starts if start.position is not None]
    for start, saved in zip(placed, _load(placed, session), strict=True):
        start.go_on(saved)
    stored = [start.to_store for start in placed if start.to_store is not None]
    if stored:
        session.run([ops for ops, _ in stored], {key: fed for _, feeds in stored for key, fed in feeds.items()})
    return [start.points for start in starts]


def _load(placed: Sequence[_Start], session: Any) -> list[Any]:
    """What the variables hold, which get their initial values where they have none or are to begin anew."""
    if not placed:
        return []
    wanted = [start.position.saved for start in placed]
    if not any(start.restarts for start in placed):
        try:
            return list(session.run(wanted))
        except tf.errors.FailedPreconditionError:
            # One has no value yet.
            pass
    ready = session.run([start.position.has_value for start in placed])
    new = [start for start, has_value in zip(placed, ready, strict=True) if not has_value or start.restarts]
    session.run([start.position.initializers for start in new])
    return list(session.run(wanted))


class _Start:
    """Where one feed begins."""

    def __init__(self, pipeline: Pipeline | None, lanes: tuple[Lane, ...]) -> None:
        self._pipeline, self._lanes = pipeline, lanes
        self.position: Any = pipeline.position if pipeline is not None else None
        self.restarts = pipeline is not None and pipeline.resume == "restart"
        self.points = [(lane, 0) for lane in lanes]
        # The ops and feeds that bring the variables up to date; None where they are.
        self.to_store: tuple[list[Any], dict[Any, Any]] | None = None

    def go_on(self, values: Sequence[Any]) -> None:
        """Finds the points, from what the variables hold."""
        assert self._pipeline is not None
        position, saved, lanes = self.position, self.position.parsed(values), self._lanes
        present, goes_on = position.fingerprint, (0,) * len(lanes)
        if any(saved.positions):
            lanes, present = _as_saved(lanes, present, saved.fingerprint)
            before = _Before(self._pipeline.name, saved.positions, saved.fingerprint)
            try:
                goes_on = before.goes_on(lanes, present, self._pipeline.resume)
            except ResumeError:
                raise
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
                position.refuse("fingerprint", saved.fingerprint, "figures from which positions can be computed")
        if (goes_on, present) != (saved.positions, saved.fingerprint):
            self.to_store = position.to_store(goes_on, present)
        elif any(goes_on) and self._pipeline.resume == "exact":
            _restore_stream(lanes, goes_on[0], saved.state())
        self.points = list(zip(lanes, goes_on, strict=True))


def say_where_it_begins(name: str, sources: Sequence[Any], session: Any) -> None:
    """Says that a restored run feeds what earlier ones have had, where a source has no position.

    No error: many a generator draws its batches at random, and is the same wherever it begins.
    """
    step = tf.train.get_global_step(session.graph)
    if step is None or not any(isinstance(source, StreamSource) and not source.can_resume for source in sources):
        return
    number = int(session.run(step))
    if number:
        logging.warning(
            "'%s' begins at its first batch, though the run goes on at step %d: its generator has no position. Use "
            "GeneratorSource(..., resume='skip') or a source with random access, to go on with the next batch.",
            name,
            number,
        )


def _restore_stream(lanes: tuple[Lane, ...], position: int, state: bytes | None) -> None:
    """Gives a stream its state back, so that it reads nothing again; without it, it reads up to its place."""
    if state is not None and isinstance(lanes[0].source, StreamSource):
        lanes[0].source.restore(position, state)


def _as_saved(
    lanes: tuple[Lane, ...], present: dict[str, int | str], saved: dict[str, int | str]
) -> tuple[tuple[Lane, ...], dict[str, int | str]]:
    """The lanes and the fingerprint with the seed of the checkpoint, if the source's own was drawn and not given."""
    seed = saved.get("seed", -1)
    sources = [lane.source for lane in lanes if isinstance(lane.source, Source) and lane.source.seed_was_drawn]
    if not sources or not isinstance(seed, int) or seed < 0:
        return lanes, present
    seeded = tuple(replace(lane, source=source.with_seed(seed)) for lane, source in zip(lanes, sources, strict=True))
    return seeded, {**present, "seed": seed}


@dataclass(frozen=True)
class _Before:
    """What the checkpoint holds."""

    name: str
    # One a tower.
    positions: tuple[int, ...]
    fingerprint: dict[str, int | str]

    def goes_on(self, lanes: tuple[Lane, ...], present: dict[str, int | str], resume: str) -> tuple[int, ...]:
        """The batch with which each lane goes on.

        Raises:
          ResumeError: `resume` is "exact", and that is not behind the last record that was consumed.
        """
        # A source of its own goes on anywhere; one in rotation only all towers together, behind the first gap.
        in_rotation = any(lane.source is None or lane.rotates for lane in lanes)
        if present == self.fingerprint and len(lanes) == len(self.positions) and not in_rotation:
            return self.positions
        epochs = getattr(lanes[0].source, "epochs", None)
        carried = carried_over(self.fingerprint, self.positions, present, len(lanes), epochs=epochs)
        if carried is not None and carried.positions == self.positions and present == self.fingerprint:
            return self.positions
        said = self._difference(present, len(lanes), carried)
        if carried is not None and carried.repeated == 0 and not self._is_of_another_shard(present):
            logging.info("%s That is exactly the next one, and the run goes on.", said)
            return carried.positions
        goes_on = carried.positions if carried is not None else self._as_far(len(lanes))
        where = f"at {_batch(goes_on)}" + ("" if carried is not None else " of the new order")
        if resume == "exact":
            raise ResumeError(
                f"{said} Give staged() the same source and devices as before, or resume='ignore' to go on {where} all "
                f"the same, or resume='restart' to begin with the first batch."
            )
        logging.warning("%s resume='ignore' goes on %s all the same.", said, where)
        return goes_on

    def _is_of_another_shard(self, present: dict[str, int | str]) -> bool:
        """Whether another shard's checkpoint was restored, and not one of another number of shards."""
        had, has = ((each.get("shard_count"), each.get("shard_index")) for each in (self.fingerprint, present))
        return had[0] == has[0] and had[1] != has[1]

    def _as_far(self, towers: int) -> tuple[int, ...]:
        """As many batches in all, where no more is known: of an order that has nothing to do with the one before."""
        return self.positions if towers == len(self.positions) else (sum(self.positions) // towers,) * towers

    def _difference(self, present: dict[str, int | str], towers: int, carried: Carried | None) -> str:
        saved = self.fingerprint
        parts = [
            f"{key} was {saved.get(key, 'not saved')!r}, is {present.get(key, 'not there')!r}"
            for key in sorted({*saved, *present})
            if saved.get(key) != present.get(key)
        ]
        if towers != len(self.positions):
            parts.append(f"towers was {len(self.positions)}, is {towers}")
        if not parts:
            parts.append("the towers have not taken in turn")
        return (
            f"'{self.name}': the checkpoint holds position {_numbers(self.positions)} in another order of batches: "
            f"{'; '.join(parts)}. {_cost(carried)}"
        )


def _cost(carried: Carried | None) -> str:
    if carried is None:
        return "Which of the new order's batches have been consumed cannot be told."
    unit = carried.unit if carried.consumed != 1 else carried.unit.removesuffix("s")
    presumed = ", if the other shards had reached the same position" if carried.presumed else ""
    return (
        f"{carried.consumed} {unit} had been consumed: going on at {_batch(carried.positions)} repeats "
        f"{carried.repeated} and leaves out none{presumed}."
    )


def _batch(positions: Sequence[int]) -> str:
    return f"batch {_numbers(positions)}"


def _numbers(positions: Sequence[int]) -> str:
    """One number where the towers agree."""
    return str(positions[0]) if len(set(positions)) == 1 else ", ".join(map(str, positions))
