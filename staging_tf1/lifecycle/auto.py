"""`auto_stage()`: finds what can run ahead of the step, stages it, and runs it in every session of the graph."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1._tf import before_first_runs, is_closed, tf
from staging_tf1.arguments import (
    AUTOTUNE,
    MOST_STAGED,
    MOST_THREADS,
    NAMED_AUTOTUNE,
    as_int,
    flag,
    listed,
    only_known,
    op_name,
    shown,
    stall_secs_or_default,
    whole,
)
from staging_tf1.auto.meaning import meaning_of
from staging_tf1.auto.report import AutoStageReport
from staging_tf1.auto.stage import AutoOptions, stage_graph
from staging_tf1.errors import AutoStageError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.queue_runner import are_started_together
from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.guards import building
from staging_tf1.graph.placement import check_device
from staging_tf1.graph.state import session_state_of, state_of
from staging_tf1.lifecycle.auto_measure import measured_costs
from staging_tf1.lifecycle.runtime import SessionRuntime
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import StallRule

_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


@only_known
def auto_stage(
    train_op: Any = None,
    *,
    keep: Sequence[Any] = (),
    capacity: int = 2,
    device: str | None = None,
    num_threads: int = 1,
    measure: bool = False,
    dry_run: bool = False,
    name: str | None = None,
) -> AutoStageReport:
    """Make the input of a complete graph run ahead of its step, without a change of the program.

    What depends on no variable and no placeholder can be computed before the step that uses it: the iterator's
    `get_next` or the dequeue, decoding, augmentation, parsing, table look-ups. A minimum cut chooses where to put the
    boundary: the ops that run ahead save time, and each tensor that is carried to the step costs some. A feed thread
    then computes the next batches while a step runs. Fetches and feeds keep their meaning, and so does the end of the
    data. An iterator may be initialized again: what was read ahead is dropped. See docs/auto_stage.md.

    Call it once, when the graph is complete, and before a session of it has run.

    Args:
      train_op: the op or tensor, or a list of these, that a training step fetches. None takes the ops in the
        collection `GraphKeys.TRAIN_OP`, where optimizers put theirs.
      keep: tensors, or their names, that are carried to the step so that it can fetch them.
      capacity: maximum number of batches that are ready, up to 2**20.
      device: device of the area. None is the device of the ops that use a tensor, if the program names it, so each
        tower's part of a batch is ready on its own device; else the host's CPU.
      num_threads: feed threads. More than one changes the order of the batches.
      measure: whether to run the input three times in a session of its own, and to use the times and sizes that were
        measured. Else they are estimates by the types of the ops. Not for Python functions and shared names.
      dry_run: whether to change nothing and only return the report.
      name: name for ops, threads and messages.

    Returns:
      What runs ahead, what is carried to the step, and why.

    Raises:
      AutoStageError: the input cannot run ahead. The message says why, and nothing was changed.
      NothingToStageError: an AutoStageError: the input is ready before the step, so moving it gains nothing.
      TypeError, ValueError: an argument is invalid.
      BuildError: called in a loop, a function or a finalized graph.

    >>> with tf.Graph().as_default():
    ...     batches = tf.data.Dataset.range(3).batch(1)
    ...     x = tf.cast(tf.data.make_one_shot_iterator(batches).get_next(), tf.float32)
    ...     w = tf.get_variable("w", initializer=1.0, use_resource=True)
    ...     train = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(w * x))
    ...     report = auto_stage()
    ...     with tf.Session() as sess:
    ...         sess.run(tf.global_variables_initializer())
    ...         [sess.run([x, train])[0].tolist() for _ in range(3)], float(sess.run(w)), report.sources
    ([[0.0], [1.0], [2.0]], -0.5, ('IteratorGetNext',))
    """
    what = "auto_stage()"
    op_name(what, name)
    check_device(what, device)
    if isinstance(keep, (str, tf.Tensor)):
        keep = [keep]
    if as_int(num_threads) == AUTOTUNE:
        raise ValueError(
            f"{what} got num_threads={NAMED_AUTOTUNE}: it stages tensors, whose order depends on the number of "
            f"threads. Leave it out, or give staged() a source with num_threads=AUTOTUNE."
        )
    options = AutoOptions(
        tuple(listed(what, "keep", keep, "tensors of the graph, or their names")),
        whole(what, "capacity", capacity, 1, MOST_STAGED, "batches"),
        device,
        whole(what, "num_threads", num_threads, 1, MOST_THREADS),
        measured_costs if flag(what, "measure", measure) else None,
        flag(what, "dry_run", dry_run),
        name,
    )
    watch_sessions()
    with building(what) as site:
        return stage_default_graph(train_op, options, site)


def stage_default_graph(train_op: Any, options: AutoOptions, site: CallSite) -> AutoStageReport:
    """`auto_stage()` with checked arguments. A session of the graph may be about to run."""
    graph = tf.get_default_graph()
    report = stage_graph(graph, _train_ops(graph, train_op), options, site)
    if not options.dry_run:
        state_of(graph).observer = Observer(graph, pipelines_of(graph))
    return report


def note_train_op(train_op: Any) -> None:
    """Note what a training step of the default graph runs, where the collection need not say it: an Estimator."""
    state_of(tf.get_default_graph()).train_op = train_op


def train_ops_of(graph: Any) -> list[Any]:
    """Return what a training step of a graph runs, as far as the graph says so."""
    noted = state_of(graph).train_op
    return list(graph.get_collection(tf.GraphKeys.TRAIN_OP)) if noted is None else [noted]


def _train_ops(graph: Any, train_op: Any) -> list[Any]:
    if train_op is None:
        train_ops = train_ops_of(graph)
        if not train_ops:
            raise AutoStageError(
                "auto_stage() found no train op in the collection GraphKeys.TRAIN_OP. Pass it: auto_stage(train_op)."
            )
        return train_ops
    refusal = f"auto_stage() got train_op={shown(train_op)}, expected ops or tensors of the default graph."
    try:
        train_ops = [graph.as_graph_element(fetch) for fetch in tf.nest.flatten(train_op, expand_composites=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise AutoStageError(refusal) from error
    if not train_ops:
        raise AutoStageError(refusal)
    return train_ops


_watching = False
# Called with the runtime of each session that is served.
_on_adopted: list[Callable[[SessionRuntime], None]] = []


def on_adopted(call: Callable[[SessionRuntime], None]) -> None:
    """Call `call` with the runtime of each session of a staged graph, unless a `StagingHook` serves it."""
    _on_adopted.append(call)


def watch_sessions() -> None:
    """Let every session that runs from now on be served, if its graph is staged."""
    global _watching
    if not _watching:
        _watching = True
        before_first_runs(_adopt)
        atexit.register(_end_sessions)


def _adopt(session: Any) -> None:
    """Serve a session of a staged graph, unless a `StagingHook` does."""
    graph = session.graph
    observer = state_of(graph).observer
    if observer is None or meaning_of(graph) is None or are_started_together(graph):
        return
    rule = StallRule(stall_secs_or_default("auto_stage()", None), False)
    runtime = SessionRuntime(session, pipelines_of(graph), observer, rule)
    session_state_of(session).runtime = runtime
    _sessions.add(session)
    runtime.start()
    for call in _on_adopted:
        call(runtime)


def _end_sessions() -> None:
    """At the end of a program that closes no session: its threads must not run on while Python ends."""
    for session in list(_sessions):
        if not is_closed(session):
            session_state_of(session).runtime.end(1.0)
