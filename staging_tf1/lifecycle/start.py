"""`start()` and `stats()`: the feed threads of a plain session, started in the only order that works; their figures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import run_unwrapped, tf, unwrapped_session
from staging_tf1.arguments import flag, having, stall_secs_or_default
from staging_tf1.errors import short_traceback
from staging_tf1.feed.feeding import check_initialized, feeding_of
from staging_tf1.feed.pipeline import Pipeline, pipelines_of
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.placement import absent_devices_named
from staging_tf1.graph.state import feeding_in
from staging_tf1.lifecycle.classic import plain_areas
from staging_tf1.lifecycle.runtime import begin
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import StallRule
from staging_tf1.watch.stats import PipelineStats, stats_of


@short_traceback
def start(
    sess: Any | None = None,
    coord: Any | None = None,
    daemon: bool = True,
    *,
    stall_secs: float | None = None,
    stall_raises: bool = False,
) -> list[threading.Thread]:
    """Start all feed threads and queue runners of a plain `tf.Session`, in the only order that works.

    Checks that the variables are initialized, clears the areas, then starts the threads like
    `tf.train.start_queue_runners`. As usual, the coordinator stops them. A second start in the same session, after
    the coordinator has stopped and joined the threads, continues with the first batch that no step has consumed.

    After an exception in a source, steps take what is staged. Then `sess.run` raises that exception, and so does
    `coord.join`.

    Args:
      sess: the session; the default session if None.
      coord: a `tf.train.Coordinator` that stops and joins the threads and raises their exceptions.
      daemon: whether the process may exit while the threads are still running.
      stall_secs: seconds after which a `sess.run` that waits for input is logged, with the most likely cause; 0
        disables the report. None uses the environment variable STAGING_TF1_STALL_SECS, or else 30.
      stall_raises: whether such a run also raises `staging.errors.StallError`, which carries the report.

    Returns:
      The started threads. Pass them to `coord.join`.

    Raises:
      UninitializedError: variables are uninitialized; the message lists them.
      TypeError: an argument has the wrong type.
      ForkedError: the process was forked after TensorFlow sessions had run in it.
      ResumeError: a pipeline was stopped in this session and cannot continue.
      ValueError: there is no session; or `coord` has been told to stop; or the graph has a `staged(lockstep=True)`,
        which needs `StagingSession` or `StagingHook`; or an argument is out of range.

    >>> import numpy as np
    >>> with tf.Graph().as_default(), tf.Session() as sess:
    ...     x = staged(ArraySource(np.arange(4), batch_size=2, epochs=1))
    ...     coord = tf.train.Coordinator()
    ...     threads = start(sess, coord)
    ...     [sess.run(x).tolist() for _ in range(2)]
    ...     coord.request_stop()
    ...     coord.join(threads)
    [[0, 1], [2, 3]]
    """
    daemon = flag("start()", "daemon", daemon)
    stall_raises = flag("start()", "stall_raises", stall_raises)
    rule = StallRule(stall_secs_or_default("start()", stall_secs), stall_raises)
    refuse_if_forked("start()")
    sess = _checked_session("start()", sess)
    if coord is not None:
        having("start()", "coord", coord, ("register_thread", "request_stop"), "a tf.train.Coordinator")
        _refuse_stopped(coord)
    pipelines = pipelines_of(sess.graph)
    _refuse_lockstep(pipelines)
    feeding = feeding_of(sess)
    with sess.graph.as_default(), absent_devices_named(sess.graph):
        check_initialized(sess, "start()")
        clear_areas(sess, pipelines)
        observer = Observer(sess.graph, pipelines)
        feeding.end_stopped(pipelines)
        feeding.prepare(pipelines)
        threads: list[threading.Thread] = tf.train.start_queue_runners(sess, coord, daemon=daemon)
    begin(feeding, observer, rule, plain=True)
    return threads


def stats(sess: Any | None = None) -> list[PipelineStats]:
    """Return the figures of every pipeline of a plain `tf.Session` so far, as `StagingSession.stats` does.

    Args:
      sess: the session; the default session if None.

    Returns:
      One record for each pipeline, or tower of one; an empty list if nothing was started in the session.

    Raises:
      TypeError: `sess` is not a session.
      ValueError: there is no session.

    >>> import numpy as np
    >>> with tf.Graph().as_default(), tf.Session() as sess:
    ...     x = staged(ArraySource(np.arange(4), batch_size=2, epochs=1), name="x")
    ...     coord = tf.train.Coordinator()
    ...     threads = start(sess, coord)
    ...     y = sess.run(x)
    ...     print(stats(sess)[0].batches)
    ...     coord.request_stop()
    ...     coord.join(threads)
    1
    """
    sess = _checked_session("stats()", sess)
    feeding = feeding_in(sess)
    if feeding is None:
        return []
    if feeding.runtime is not None:
        return list(feeding.runtime.stats())
    # Started by queue runners only.
    return stats_of([pipeline for pipeline in pipelines_of(sess.graph) if pipeline in feeding.runs], sess)


def _checked_session(caller: str, sess: Any | None) -> Any:
    sess = sess if sess is not None else tf.get_default_session()
    if sess is None:
        raise ValueError(f"{caller} got no session, and there is no default session. Pass sess=.")
    # A MonitoredSession starts the threads itself. It has no list_devices, so it is refused here.
    having(caller, "sess", sess, ("graph", "run", "make_callable", "list_devices"), "a tf.Session")
    return unwrapped_session(sess)


def _refuse_stopped(coord: Any) -> None:
    # An object with the same methods need not have this one.
    if getattr(coord, "should_stop", lambda: False)():
        raise ValueError(
            "start() got a coord that has been told to stop, which would stop the threads at once. Pass a new "
            "tf.train.Coordinator(), or call coord.clear_stop() first."
        )


def _refuse_lockstep(pipelines: Sequence[Pipeline]) -> None:
    for pipeline in pipelines:
        if pipeline.lockstep:
            raise ValueError(
                f"{pipeline} is in lockstep: its put must be added to every step, which start() cannot do. Use "
                f"StagingSession or StagingHook, or staged(..., lockstep=False)."
            )


def own_areas(graph: Any, pipelines: Sequence[Pipeline]) -> list[Any]:
    """Return the areas that belong to one session and to no pipeline. A pipeline clears its own area."""
    return [area for area in plain_areas(graph, pipelines) if not area.is_shared]


def clear_areas(sess: Any, pipelines: Sequence[Pipeline]) -> None:
    """Clear areas that a server has kept from an earlier session."""
    if not sess.sess_str:
        # A local session has its own, empty areas.
        return
    for area in own_areas(sess.graph, pipelines):
        run_unwrapped(sess, area.clear_op())
