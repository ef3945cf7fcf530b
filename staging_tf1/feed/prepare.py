"""`prepare`: makes the pipelines of a session ready to start, all of them at once.

TensorFlow processes the whole graph for each new set of ops that a session runs. If each pipeline ran its own ops at
the start, a graph with twice as many pipelines would take four times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from staging_tf1._tf import deterministic_ops, run_unwrapped
from staging_tf1.cluster.dealer import Dealer
from staging_tf1.errors import BuildError, ResumeError
from staging_tf1.feed.checkpoint import warn_unsaved
from staging_tf1.feed.counts import read_counts
from staging_tf1.feed.join_run import starts_in_cluster
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.pipeline_run import end_earlier, run_in
from staging_tf1.feed.resume import Start, fast_forward, resume_points, say_where_it_begins
from staging_tf1.feed.sink_run import Canceller
from staging_tf1.feed.supply import LeasedSupply, LocalSupply, Supply
from staging_tf1.feed.unfed import naming_unfed
from staging_tf1.graph.acked import Acked
from staging_tf1.graph.position import Position
from staging_tf1.graph.state import session_state_of
from staging_tf1.sources import Source
from staging_tf1.sources.spans import end_of, next_kept


@dataclass(frozen=True)
class Prepared:
    """What a pipeline needs to start."""

    # Each producer, with the number of its first batch.
    starts: list[tuple[Producer, int]]
    # Shared by all pipelines that were prepared together.
    canceller: Canceller


def prepare(pipelines: Sequence[Pipeline], session: Any) -> None:
    """Prepare those of `pipelines` that are neither running nor prepared in `session`. All must be started next."""
    of_session = session_state_of(session)
    with of_session.lock:
        new = [
            pipeline
            for pipeline in pipelines
            if run_in(session, pipeline) is None and pipeline not in of_session.prepared
        ]
        if not new:
            return
        _check_clock(new)
        warn_unsaved(new, session.graph)
        end_earlier(new, session)
        for pipeline in new:
            if pipeline.plan.resume != "restart":
                say_where_it_begins(pipeline, session)
        starts = _starts(new, session)
        for pipeline, begins in zip(new, starts, strict=True):
            if pipeline in of_session.started and pipeline not in of_session.renewed:
                _check_not_at_end(pipeline, begins)
        inits = [pipeline.init for pipeline in new if pipeline.init is not None]
        with naming_unfed(new):
            if inits:
                run_unwrapped(session, inits)
            for pipeline, begins in zip(new, starts, strict=True):
                fast_forward(pipeline, begins, session)
        sinks = [sink for pipeline in new for sink in pipeline.sinks]
        again = [sink for pipeline in new if pipeline in of_session.started for sink in pipeline.sinks]
        if again:
            # Their counts go on, but their readers begin anew.
            of_session.taken |= {sink: count.taken for sink, count in read_counts(again, session).items()}
            run_unwrapped(session, [sink.renew for sink in again])
        run_unwrapped(session, [sink.fill if sink in again else sink.reset for sink in sinks])
        of_session.started |= {*new}
        of_session.renewed -= {*new}
        threaded = [sink for pipeline in new if not pipeline.lockstep for sink in pipeline.sinks]
        canceller = Canceller(session, threaded)
        of_session.prepared |= {
            pipeline: Prepared(begins, canceller) for pipeline, begins in zip(new, starts, strict=True)
        }


def _check_not_at_end(pipeline: Pipeline, starts: Sequence[Start]) -> None:
    """Raise ResumeError if a pipeline starts again in its session, and has no batch left."""
    sources = [(each.source, each.plan, first) for each, first in starts if isinstance(each.source, Source)]
    ends = [end_of(source, plan.limit) for source, plan, _ in sources]
    left = [next_kept(source, plan.skip, first, end) for (source, plan, first), end in zip(sources, ends, strict=True)]
    if left and all(number is None for number in left):
        raise ResumeError(
            f"{pipeline}: cannot start again, because its steps have consumed all its {ends[0]} batches. For "
            f"several passes in one session, give the source epochs=None, and run source.batches_per_epoch steps for "
            f"each pass."
        )


def _check_clock(pipelines: Sequence[Pipeline]) -> None:
    """Raise BuildError if steps would read the clock, but deterministic ops have been enabled since."""
    timed = [pipeline for pipeline in pipelines if any(sink.stats.reads_clock for sink in pipeline.sinks)]
    if timed and deterministic_ops():
        raise BuildError(
            f"{timed[0]} was built before deterministic ops were enabled: its steps read the clock, which TensorFlow "
            f"then refuses, and other ops of the graph are not the deterministic ones. Call "
            f"tf.config.experimental.enable_op_determinism() before you build the graph, or set TF_DETERMINISTIC_OPS=1 "
            f"before the program starts."
        )


def _starts(pipelines: Sequence[Pipeline], session: Any) -> list[list[Start]]:
    """Return where each pipeline begins: in a cluster, as the chief says."""
    alone = [pipeline for pipeline in pipelines if pipeline.cluster is None]
    starts = dict(zip(alone, resume_points(alone, session), strict=True))
    shared = [pipeline for pipeline in pipelines if pipeline.cluster is not None]
    if shared:
        starts |= dict(zip(shared, starts_in_cluster(shared, session), strict=True))
    return [supplied(pipeline, starts[pipeline], session) for pipeline in pipelines]


@dataclass(frozen=True)
class _InTask:
    """What feeds a pipeline in this task."""

    supply: LeasedSupply
    # On the chief.
    dealer: Dealer | None

    def stop(self) -> None:
        if self.dealer is not None:
            self.dealer.stop()

    def give_back(self) -> None:
        self.supply.give_back()


def supplied(pipeline: Pipeline, starts: Sequence[Start], session: Any) -> list[Start]:
    """Return `starts` with a supply, if the workers share the batches dynamically. The chief begins to deal."""
    position = pipeline.position
    if position is None or position.skip is None:
        return list(starts)
    ((producer, first),) = starts
    assert isinstance(producer.source, Source)
    supply = _supply(pipeline, position, position.skip, producer.source.num_batches, session)
    return [(replace(producer, supply=supply), first)]


def _supply(
    pipeline: Pipeline, position: Position, skips: tuple[Any, Any], num_batches: int | None, session: Any
) -> Supply:
    sink, cluster, variable = pipeline.sinks[0], pipeline.cluster, position.saved[0]

    def skip(batch: int) -> None:
        run_unwrapped(session, skips[0], {skips[1]: batch})

    def look() -> tuple[int, Acked]:
        staged, cells = run_unwrapped(session, (sink.size, variable))
        return int(staged), Acked(cells)

    if cluster is None:
        return LocalSupply(Acked(run_unwrapped(session, variable)), num_batches, skip)
    supply = LeasedSupply(cluster, pipeline.name, look, skip)
    dealer = Dealer(cluster.member, pipeline.name, position.name, num_batches) if cluster.is_chief else None
    cluster.member.register(pipeline.name, _InTask(supply, dealer))
    if dealer is not None:
        dealer.start()
    return supply
