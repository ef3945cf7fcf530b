"""What the graph of an Estimator with pipelines needs: a `StagingHook`, and positions that fit its checkpoints."""

from __future__ import annotations

from typing import Any

from staging_tf1 import StagingHook
from staging_tf1._tf import tf
from staging_tf1.errors import ClusterError
from staging_tf1.feed.pipeline import Pipeline, pipelines_of
from staging_tf1.graph.state import state_of
from staging_tf1.legacy.shim.estimator.sessions import iterator_hooks


def hook_for_graph(*, saves_positions: bool) -> Any | None:
    """Return the hook that runs the pipelines of the default graph; None if it has no pipeline.

    `saves_positions` says whether the checkpoints of this session hold the positions of its pipelines.

    Raises ClusterError if a pipeline belongs to a `staging.Cluster`.
    """
    graph = tf.get_default_graph()
    pipelines = pipelines_of(graph)
    if not pipelines:
        return None
    _initialize_early(iterator_hooks(graph))
    for pipeline in pipelines:
        _refuse_cluster(pipeline)
        if not saves_positions:
            _keep_out_of_checkpoints(pipeline)
    return _HookUnlessGiven()


class _HookUnlessGiven(tf.train.SessionRunHook):  # type: ignore[misc]
    """A `StagingHook`, unless the program has put one into the session itself: its hooks begin before this one."""

    def __init__(self) -> None:
        self._hook: StagingHook | None = None

    def begin(self) -> None:
        if not state_of(tf.get_default_graph()).start_together:
            self._hook = StagingHook()
            self._hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._hook is not None:
            self._hook.after_create_session(session, coord)

    def end(self, session: Any) -> None:
        if self._hook is not None:
            self._hook.end(session)


def _initialize_early(iterator_hooks: list[Any]) -> None:
    """Initialize the iterators of the `input_fn` with the tables, before the feed threads start and read from them.

    An Estimator does so in a hook, when the threads are running already.
    """
    for hook in iterator_hooks:
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, hook._iterator.initializer)
        # Again, it would take the iterator back to its beginning.
        hook.after_create_session = lambda session, coord: None


def _keep_out_of_checkpoints(pipeline: Pipeline) -> None:
    """Make the position local to the session, so that it begins at the first batch.

    The checkpoint holds the position of the training input. An evaluation would begin at that position, or fail if its
    pipeline has another name. A worker that is not the chief would wait for the chief to initialize it.
    """
    mine = {variable.ref() for variable in pipeline.position_variables}
    variables = tf.get_collection_ref(tf.GraphKeys.GLOBAL_VARIABLES)
    variables[:] = [variable for variable in variables if variable.ref() not in mine]
    for variable in pipeline.position_variables:
        tf.add_to_collection(tf.GraphKeys.LOCAL_VARIABLES, variable)


def _refuse_cluster(pipeline: Pipeline) -> None:
    if pipeline.cluster is not None:
        raise ClusterError(
            f"{pipeline} has cluster=, and an Estimator starts the servers of its cluster itself. Leave cluster= out "
            "and give each worker its own part of the input, for example dataset.shard(num_workers, worker_index); or "
            "train with StagingSession(cluster=...) in place of the Estimator."
        )
