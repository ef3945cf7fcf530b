"""`prepare`: makes the pipelines of a session ready to start, all of them at once.

TensorFlow processes the whole graph for each new set of ops that a session runs. If each pipeline ran its own ops at
the start, a graph with twice as many pipelines would take four times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import deterministic_ops, run_unwrapped
from staging_tf1.errors import BuildError
from staging_tf1.feed.dealt import supplied
from staging_tf1.feed.join_run import starts_in_cluster
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.pipeline_run import end_earlier, run_in
from staging_tf1.feed.resume import Start, fast_forward, resume_points, say_where_it_begins
from staging_tf1.feed.sink_run import Canceller
from staging_tf1.graph.state import session_state_of


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
        new = [each for each in pipelines if run_in(session, each) is None and each not in of_session.prepared]
        if not new:
            return
        _check_clock(new)
        end_earlier(new, session)
        for pipeline in new:
            if pipeline.resume != "restart":
                say_where_it_begins(pipeline, session)
        starts = _starts(new, session)
        inits = [pipeline.init for pipeline in new if pipeline.init is not None]
        if inits:
            run_unwrapped(session, inits)
        for pipeline, begins in zip(new, starts, strict=True):
            fast_forward(pipeline, begins, session)
        sinks = [sink for pipeline in new for sink in pipeline.sinks]
        run_unwrapped(session, [sink.renew if sink in of_session.reset else sink.reset for sink in sinks])
        of_session.reset |= {sink for sink in sinks if sink.renew is not None}
        threaded = [sink for pipeline in new if not pipeline.lockstep for sink in pipeline.sinks]
        canceller = Canceller(session, threaded)
        of_session.prepared |= {
            pipeline: Prepared(begins, canceller) for pipeline, begins in zip(new, starts, strict=True)
        }


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
    return [supplied(each, starts[each], session) for each in pipelines]


def is_prepared(pipeline: Pipeline, session: Any) -> bool:
    """Whether `pipeline` is prepared but not started in `session`."""
    return pipeline in session_state_of(session).prepared


def take_prepared(pipeline: Pipeline, session: Any) -> Prepared:
    """Remove and return what `pipeline` needs to start."""
    found: Prepared = session_state_of(session).prepared.pop(pipeline)
    return found
