"""Where the pipelines of a worker begin in a cluster: the chief prepares all positions, the others read theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.fence import fence_of
from staging_tf1.cluster.shared_input import CONTENT
from staging_tf1.feed.gated import gate_runs
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.resume import Start, points_of_run, resume_points
from staging_tf1.graph.position import SHARE
from staging_tf1.graph.state import session_state_of
from staging_tf1.graph.sync_tokens import sync_tokens_of
from staging_tf1.sources.records import RecordSource


def note_run(session: Any, *, continues: bool) -> None:
    """Record whether the chief's `session` continues a run, or has begun one."""
    session_state_of(session).continues_run = continues


def starts_in_cluster(pipelines: Sequence[Pipeline], session: Any) -> list[list[Start]]:
    """Return each producer of this worker's pipelines with its first batch, and let its steps count.

    Raises:
      ClusterError: the chief does not answer in time, or has another pipeline.
      ResumeError, CheckpointError: as `resume_points`, on the chief.
    """
    cluster = pipelines[0].cluster
    assert cluster is not None
    gate_runs(session, cluster)
    inputs = {pipeline.name: _input_of(pipeline) for pipeline in pipelines if pipeline.position is not None}
    if cluster.is_chief:
        if session_state_of(session).continues_run:
            # Before anything that tells the others of an error: they train, and do not need this chief.
            cluster.member.check_inputs(inputs)
        with cluster.member.telling_failures():
            return _as_chief(pipelines, session, inputs)
    if not (inputs or cluster.sync):
        return points_of_run(pipelines, session)
    while True:
        run = cluster.member.await_run(inputs, cluster.start_timeout_secs)
        if cluster.sync:
            cluster.member.await_everybody(cluster.start_timeout_secs)
        if inputs:
            fence_of(cluster, session.graph).take(session)
        cluster.member.pauses.await_none()
        try:
            starts = points_of_run(pipelines, session)
        except tf.errors.FailedPreconditionError:
            # A parameter server has restarted since. The chief will restore the variables.
            continue
        # The chief may have begun to restore in between.
        if cluster.member.is_current(run):
            return starts


def _input_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return what must be the same in all workers, and is not in the fingerprint that they compare."""
    source = pipeline.producers[0].source
    is_own = pipeline.position is None or pipeline.position.fingerprint.get(SHARE) == "own"
    if is_own or not isinstance(source, RecordSource):
        return {}
    return {"epochs": source.epochs, "transform": source.transform_name, CONTENT: source.content_sample()}


def _as_chief(pipelines: Sequence[Pipeline], session: Any, inputs: Mapping[str, Any]) -> list[list[Start]]:
    cluster = pipelines[0].cluster
    assert cluster is not None
    member = cluster.member
    continues = session_state_of(session).continues_run
    if continues is None:
        # A session made by hand may have initialized the variables again.
        member.begin_run()
    sync_tokens = sync_tokens_of(session.graph)
    if sync_tokens is not None and not continues:
        # With sync tokens of an earlier run, workers would begin a round too early, and their gradients be dropped.
        run_unwrapped(session, sync_tokens.drain)
    starts = resume_points(pipelines, session, before_change=member.begin_run if continues else None)
    if inputs:
        fence_of(cluster, session.graph).take(session)
    member.mark_initialized(inputs)
    if cluster.sync:
        member.await_everybody(cluster.start_timeout_secs)
    return starts
