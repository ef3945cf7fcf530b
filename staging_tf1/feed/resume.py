"""Where a session's feeding begins: at the position in its checkpoint, in the same order as before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from absl import logging

from staging_tf1._tf import fast_callable, run_unwrapped, tf
from staging_tf1.errors import ClusterError, ResumeError, StagingError
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.source_errors import SkipCounter, SkipRule, refuse_unfed
from staging_tf1.graph.acked import Acked
from staging_tf1.graph.position import SHARE, STATIC, Fingerprint, Position, Saved, TowerRange, without_share
from staging_tf1.sources import Source, StreamSource
from staging_tf1.sources.files.file_list import changed_files
from staging_tf1.sources.reshard import DATA_SERVICE, LEFT_OUT, Carried, carried_over, completed, order_of
from staging_tf1.sources.spans import Spans, shortened

# What to do when a checkpoint was saved with another source.
RESUME_MODES = ("exact", "ignore", "restart")

# A producer, with the number of its first batch.
Start = tuple[Producer, int]


def resume_points(
    pipelines: Sequence[Pipeline],
    session: Any,
    going_on: Collection[Pipeline] = (),
    before_change: Callable[[], None] | None = None,
) -> list[list[Start]]:
    """Return the producers of each pipeline, with the sources of the checkpoint, and the number of their first batch.

    TensorFlow goes through the whole graph for each new set of ops, so all pipelines share the same few runs.

    Args:
      pipelines: the pipelines to start.
      going_on: those that were started in it before. Each continues its own position.
      before_change: None for a new run. For a session that continues the run of a cluster: called before any position
        is rewritten, which it is only if the program has changed.

    Raises:
      ResumeError: the checkpoint was saved with another source, or for other shards, and records would repeat. The
        message has both values and the cost.
      CheckpointError: it holds no valid position.
    """
    starts = [_Resumption(pipeline) for pipeline in pipelines]
    positioned = [start for start in starts if start.pipeline.position is not None]
    new = [start.pipeline for start in starts if before_change is None and start.pipeline not in going_on]
    loaded = _load([start.pipeline for start in positioned], session, new)
    for start, saved in zip(positioned, loaded, strict=True):
        start.resume(saved)
    stored = [start.to_store for start in positioned if start.to_store is not None]
    if stored:
        if before_change is not None:
            before_change()
        run_unwrapped(
            session, [ops for ops, _ in stored], {key: fed for _, feeds in stored for key, fed in feeds.items()}
        )
    return [start.starts for start in starts]


def points_of_run(pipelines: Sequence[Pipeline], session: Any) -> list[list[Start]]:
    """As `resume_points`, in a worker of a cluster: at the positions that the chief has prepared. Changes nothing.

    Raises:
      ClusterError: the chief's pipeline is another one.
      tf.errors.FailedPreconditionError: the positions are uninitialized.
    """
    starts = [_Resumption(pipeline) for pipeline in pipelines]
    positioned = [start for start in starts if start.pipeline.position is not None]
    wanted = [_position(start.pipeline).saved for start in positioned]
    for start, saved in zip(positioned, run_unwrapped(session, wanted) if wanted else (), strict=True):
        start.follow(saved)
    return [start.starts for start in starts]


def _load(pipelines: Sequence[Pipeline], session: Any, new: Sequence[Pipeline]) -> list[Any]:
    """What the position variables hold. Those without a value, or that are to restart, get their initial values.

    Args:
      pipelines: with a position.
      new: those that begin a run, and may thus restart.
    """
    if not pipelines:
        return []
    positions = [_position(pipeline) for pipeline in pipelines]
    wanted = [position.saved for position in positions]
    restart = [pipeline for pipeline in pipelines if pipeline.plan.resume == "restart" and pipeline in new]
    # Asked first: TensorFlow prints a line for each read of an uninitialized variable.
    initialized = run_unwrapped(session, [position.has_value for position in positions])
    unset = [
        position
        for pipeline, position, has_value in zip(pipelines, positions, initialized, strict=True)
        if not has_value or pipeline in restart
    ]
    if unset:
        run_unwrapped(session, [position.initializers for position in unset])
    return list(run_unwrapped(session, wanted))


def _position(pipeline: Pipeline) -> Position:
    assert pipeline.position is not None
    return pipeline.position


class _Resumption:
    """Where one pipeline begins."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.starts: list[Start] = [(producer, 0) for producer in pipeline.producers]
        # The ops and feeds that update the variables; None where they are right.
        self.to_store: tuple[list[Any], dict[Any, Any]] | None = None

    def resume(self, values: Sequence[Any]) -> None:
        """Find the starts from what the variables hold."""
        pipeline, position, producers = self.pipeline, _position(self.pipeline), self.pipeline.producers
        held = position.parsed(values)
        present, positions = position.fingerprint, position.beginning_at((0,) * position.tower_range.all_towers)
        if any(held.positions):
            batches = held.positions if held.acked is None else (held.acked.end,)
            try:
                saved = held._replace(fingerprint=completed(held.fingerprint, present, batches))
                producers, present = _with_saved_seed(producers, present, saved.fingerprint)
                positions = self._positions(saved, producers, order_of(present))
                self._check_left_out(saved, present, positions)
            except StagingError:
                raise
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
                position.refuse("fingerprint", held.fingerprint, "figures from which positions can be computed")
        if (positions, present) != (held.positions, held.fingerprint):
            self.to_store = position.to_store(positions, present)
        elif any(positions) and pipeline.plan.resume == "exact":
            # With its state a stream reads nothing again; otherwise it reads up to its position.
            source, state = producers[0].source, held.state()
            if state is not None and isinstance(source, StreamSource):
                source.restore(positions[0], state)
        self.starts = list(zip(producers, position.starts(positions), strict=True))

    def _positions(self, saved: Saved, producers: tuple[Producer, ...], present: Fingerprint) -> tuple[int, ...]:
        """Return what the variable of the positions must hold, for `present`, the order of now."""
        saved = saved._replace(fingerprint=order_of(saved.fingerprint))
        pipeline, position = self.pipeline, _position(self.pipeline)
        # Towers with a source each resume anywhere; towers in rotation only together, after the first gap.
        in_rotation = any(producer.source is None or producer.plan.in_rotation for producer in producers)
        if present == saved.fingerprint and position.length == len(saved.positions) and not in_rotation:
            return saved.positions
        before = _Before(pipeline.name, saved.positions, saved.fingerprint)
        if saved.acked is not None:
            before = _in_order(before, saved.acked, pipeline.plan.resume, present, position.length)
        tower_range = position.tower_range
        if not any(before.positions):
            return position.beginning_at((0,) * tower_range.all_towers)
        return position.beginning_at(
            before.resume(producers, without_share(present), pipeline.plan.resume, tower_range)
        )

    def _check_left_out(self, saved: Saved, present: Fingerprint, positions: tuple[int, ...]) -> None:
        """Log what is left out now and was not, or was and is not. All else keeps its place, so positions stay valid.

        Raises:
          ResumeError: the same batch numbers are left out as before, and are those of other records now.
        """
        pipeline, skip = self.pipeline, self.pipeline.plan.skip
        had, has = ({key: each[key] for key in LEFT_OUT if key in each} for each in (saved.fingerprint, present))
        first = min(positions) if saved.acked is None else Acked(positions).base
        changes = _differences(had, has)
        if changes:
            logging.info("'%s': %s. All else keeps its place in the order.", pipeline.name, "; ".join(changes))
        before = Spans.parsed(str(had.get("skip", "")))
        if (before | skip.below(first)).count > before.count:
            logging.warning(
                "'%s': skip=%s has batches before batch %d, where the checkpoint resumes. They were not left out.",
                pipeline.name,
                skip.short,
                first,
            )
        is_ahead = skip.count > skip.below(first).count
        if not is_ahead or had.get("skip") != has.get("skip"):
            return
        towers = [1 if saved.acked is not None else len(saved.positions), _position(pipeline).tower_range.all_towers]
        renumbered = _differences(*(without_share(order_of(each)) for each in (saved.fingerprint, present)))
        renumbered += [f"towers was {towers[0]}, is {towers[1]}"] * (towers[0] != towers[1])
        if not renumbered:
            return
        problem = (
            f"'{pipeline.name}': skip={skip.short} is as in the checkpoint, but these numbers are those of other "
            f"batches now: {'; '.join(renumbered)}."
        )
        if pipeline.plan.resume == "exact":
            raise ResumeError(
                f"{problem} Pass the numbers that the batches have now, leave out their records with source.without(), "
                f"or use resume='ignore' to leave out what has these numbers now."
            )
        logging.warning("%s resume='ignore' leaves out what has these numbers now.", problem)

    def follow(self, values: Sequence[Any]) -> None:
        pipeline, position = self.pipeline, _position(self.pipeline)
        saved = position.parsed(values)
        producers, present = _with_saved_seed(pipeline.producers, position.fingerprint, saved.fingerprint)
        shares = [fingerprint.get(SHARE, STATIC) for fingerprint in (saved.fingerprint, present)]
        if shares[0] != shares[1]:
            raise ClusterError(
                f"{pipeline}: the chief has share={shares[0]!r}, and {pipeline.task} has share={shares[1]!r}. Give "
                f"staged() the same share= in every worker."
            )
        different = _differences(saved.fingerprint, present)
        if len(saved.positions) != position.length:
            different.append(f"towers was {len(saved.positions)}, is {position.length}")
        if different:
            raise ClusterError(
                f"{pipeline}: the chief reads another source than {pipeline.task}: {'; '.join(different)} (first the "
                f"chief's). Give every worker the same whole source; staged(cluster=...) divides it. For a source that "
                f"you divide yourself, use share='own'."
            )
        self.starts = list(zip(producers, position.starts(saved.positions), strict=True))


def say_where_it_begins(pipeline: Pipeline, session: Any) -> None:
    """Warn that a restored run repeats batches, because a source or a `CustomRunner` has no position.

    This is no error: for generators that draw batches at random, it does not matter where they begin.
    """
    step = tf.train.get_global_step(session.graph)
    sources = [producer.source for producer in pipeline.producers]
    if not pipeline.stages and any(source is not None for source in sources):
        reason = "a CustomRunner has no position. Use staged() with a random-access source"
    elif any(isinstance(source, StreamSource) and not source.can_resume for source in sources):
        reason = "its generator has no position. Use GeneratorSource(..., resume='skip') or a random-access source"
    else:
        return
    if step is None:
        return
    number = int(run_unwrapped(session, step))
    if number:
        logging.warning(
            "'%s' begins at its first batch although the run resumes at step %d: %s to resume with the next batch.",
            pipeline.name,
            number,
            reason,
        )


def fast_forward(pipeline: Pipeline, starts: Sequence[Start], session: Any) -> None:
    """Compute and drop the batches that earlier runs consumed, of a graph-computed input with bad batches.

    A bad batch has no number there, so the position counts the good ones, and computing them one at a time is the only
    way to find as many. `Dataset.skip` fails at a bad element, and starts counting again after it. The bad batches in
    between are logged, whatever their number: earlier runs have skipped them, each within its own limit.
    """
    if not pipeline.plan.fast_forwards:
        return
    producer = starts[0][0]
    left = min(first * len(starts) + tower for tower, (_, first) in enumerate(starts))
    compute = fast_callable(session, feeds=(), targets=[tensor.op for tensor in pipeline.sinks[0].put.values])
    skipped = SkipCounter(producer.name, SkipRule(producer.plan.skip_rule.types))
    while left:
        try:
            compute()
        except tf.errors.OutOfRangeError:
            return
        except skipped.types as error:
            refuse_unfed(error, [pipeline])
            skipped.skip(error)
        else:
            left -= 1


def _with_saved_seed(
    producers: tuple[Producer, ...], present: Fingerprint, saved: Fingerprint
) -> tuple[tuple[Producer, ...], Fingerprint]:
    """The producers and the fingerprint with the checkpoint's seed, if the source's own was drawn and not given."""
    seed = saved.get("seed", -1)
    sources = [
        producer.source
        for producer in producers
        if isinstance(producer.source, Source) and producer.source.seed_was_drawn
    ]
    if not sources or not isinstance(seed, int) or seed < 0:
        return producers, present
    seeded = tuple(
        replace(producer, source=source.with_seed(seed)) for producer, source in zip(producers, sources, strict=True)
    )
    return seeded, {**present, "seed": seed}


_UNEVEN = (
    "The {0} towers (one for each device of each worker) had stopped at different batches. Only a run with {0} towers "
    "can continue exactly."
)


@dataclass(frozen=True)
class _Before:
    """What the checkpoint holds."""

    name: str
    # One a tower.
    positions: tuple[int, ...]
    fingerprint: Fingerprint

    def resume(
        self, producers: tuple[Producer, ...], present: Fingerprint, mode: str, tower_range: TowerRange
    ) -> tuple[int, ...]:
        """The first batch of each tower, of all workers.

        Raises:
          ResumeError: `mode` is "exact", and that would repeat or skip records.
        """
        towers = tower_range.all_towers
        if present == self.fingerprint and towers == len(self.positions) > tower_range.towers:
            # Each worker has an input and a rotation of its own.
            alone = tower_range._replace(first=0, all_towers=tower_range.towers)
            parts = [
                self.positions[first : first + tower_range.towers] for first in range(0, towers, tower_range.towers)
            ]
            befores = [replace(self, positions=part) for part in parts]
            return tuple(number for part in befores for number in part.resume(producers, present, mode, alone))
        epochs = getattr(producers[0].source, "epochs", None)
        carried = carried_over(self.fingerprint, self.positions, present, towers, epochs=epochs)
        if carried is not None and carried.positions == self.positions and present == self.fingerprint:
            return self.positions
        difference = self._difference(present, towers, carried)
        if carried is not None and carried.repeated == 0 and not self._is_of_another_shard(present):
            logging.info("%s Resuming; nothing is repeated or skipped.", difference)
            return carried.positions
        first = carried.positions if carried is not None else self._as_far(towers)
        where = f"at {_batch(first)}" + ("" if carried is not None else " of the new order")
        if mode == "exact":
            number = len(self.positions)
            uneven = f" {_UNEVEN.format(number)}" if towers != number and len(set(self.positions)) > 1 else ""
            raise ResumeError(
                f"{difference}{uneven} Give staged() the same source and devices as before, or resume='ignore' to "
                f"continue {where} anyway, or resume='restart' to begin with the first batch."
            )
        logging.warning("%s resume='ignore' continues %s anyway.", difference, where)
        return first

    def _is_of_another_shard(self, present: Fingerprint) -> bool:
        """Whether the checkpoint is that of another shard, and not of another number of shards."""
        had, has = (
            (fingerprint.get("shard_count"), fingerprint.get("shard_index"))
            for fingerprint in (self.fingerprint, present)
        )
        return had[0] == has[0] and had[1] != has[1]

    def _as_far(self, towers: int) -> tuple[int, ...]:
        """The positions for as many batches in all, in an order that has nothing to do with the earlier one."""
        return self.positions if towers == len(self.positions) else (sum(self.positions) // towers,) * towers

    def _difference(self, present: Fingerprint, towers: int, carried: Carried | None) -> str:
        parts = _differences(self.fingerprint, present)
        if towers != len(self.positions):
            parts.append(f"towers was {len(self.positions)}, is {towers}")
        if present.get("source") == self.fingerprint.get("source") == DATA_SERVICE:
            parts.append("the tf.data service delivers in a new order each time")
        if not parts:
            parts.append("the towers consumed batches out of rotation")
        return (
            f"'{self.name}': the checkpoint holds position {_numbers(self.positions)} in another order of batches: "
            f"{'; '.join(parts)}. {_cost(carried)}"
        )


def _in_order(before: _Before, acked: Acked, mode: str, present: Fingerprint, length: int) -> _Before:
    """Return what one tower would have saved that reads the whole source, in place of dynamic shares.

    Args:
      before: what the checkpoint holds.
      acked: which batches had been consumed.
      mode: what to do if batches would be repeated; see `RESUME_MODES`.
      present: the fingerprint of the source now.
      length: how many numbers the present position has.

    Raises:
      ResumeError: `mode` is "exact", and batches would be repeated.
    """
    if acked.ahead:
        window = [] if present != before.fingerprint else [f"window was {len(before.positions)}, is {length}"]
        changes = "; ".join(_differences(before.fingerprint, present) + window)
        problem = (
            f"'{before.name}': the checkpoint was saved with share='dynamic', whose workers consume batches out of "
            f"order: all before batch {acked.base}, and {acked.ahead} after it. In another order of batches "
            f"({changes}), to continue at batch {acked.base} repeats those {acked.ahead}."
        )
        if mode == "exact":
            raise ResumeError(
                f"{problem} Give staged() the same source and share='dynamic' as before, or resume='ignore' to repeat "
                f"them, or resume='restart' to begin with the first batch."
            )
        logging.warning("%s resume='ignore' repeats them.", problem)
    return _Before(before.name, (acked.base,), without_share(before.fingerprint))


def _differences(saved: Fingerprint, present: Fingerprint) -> list[str]:
    """Say for each entry that differs what it was and what it is."""
    return [
        (changed_files(saved.get(key), present.get(key)) if key == "file_list" else None)
        or ("files of the store were replaced (their sizes or ETags differ)" if key == "file_versions" else None)
        or (f"share was {saved.get(key, STATIC)!r}, is {present.get(key, STATIC)!r}" if key == SHARE else None)
        or f"{key} was {_shown(saved, key, 'not saved')}, is {_shown(present, key, 'absent')}"
        for key in sorted({*saved, *present})
        if saved.get(key) != present.get(key)
    ]


def _shown(fingerprint: Fingerprint, key: str, absent: str) -> str:
    if key in LEFT_OUT:
        return shortened(str(fingerprint.get(key, "nothing")))
    return repr(fingerprint.get(key, absent))


def _cost(carried: Carried | None) -> str:
    if carried is None:
        return "The saved position cannot be mapped to the new order."
    unit = carried.unit if carried.consumed != 1 else carried.unit.removesuffix("s")
    presumed = ", if the other shards had reached the same position" if carried.presumed else ""
    return (
        f"{carried.consumed} {unit} had been consumed: continuing at {_batch(carried.positions)} repeats "
        f"{carried.repeated} and skips none{presumed}."
    )


def _batch(positions: Sequence[int]) -> str:
    return f"batch {_numbers(positions)}"


def _numbers(positions: Sequence[int]) -> str:
    """One number where the towers agree."""
    return str(positions[0]) if len(set(positions)) == 1 else ", ".join(map(str, positions))
