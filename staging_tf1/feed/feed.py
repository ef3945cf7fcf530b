"""`Feed`: what starts with the queue runners and owns one run a session."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import UninitializedError
from staging_tf1.feed.dropping import drop
from staging_tf1.feed.lane import Lane
from staging_tf1.feed.resuming import resume_points, say_where_it_begins
from staging_tf1.feed.run import FeedRun
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.pipeline import Pipeline
from staging_tf1.graph.readiness import uninitialized_names

# Attributes of the graph and of the session: a registry of our own would keep both alive.
_FEEDS = "_staging_tf1_feeds"
_RUNS = "_staging_tf1_runs"


class Feed(tf.train.QueueRunner):  # type: ignore[misc]
    """The lanes of one `staged()` or `CustomRunner`, in the form that `tf.train.start_queue_runners` starts.

    Being a `tf.train.QueueRunner`, it starts wherever the classic runners start: in a MonitoredSession, a Supervisor
    or a plain session, with or without our own helpers. The base class's constructor is not called: it wants enqueue
    ops that need no feed.
    """

    def __init__(self, name: str, lanes: tuple[Lane, ...], made_at: CallSite, pipeline: Pipeline | None = None) -> None:
        self._name, self.lanes, self.made_at, self.pipeline = name, lanes, made_at, pipeline
        # Weak: a run belongs to its session, and must go with it.
        self._all_runs: weakref.WeakSet[FeedRun] = weakref.WeakSet()
        self._feed_lock = threading.Lock()
        # What a graph that is exported says of us. No enqueue ops: after an import the source is gone, and a runner
        # that ran the put without it would only fail.
        sink = lanes[0].sink
        self._queue = sink.queue
        self._enqueue_ops: list[Any] = []
        self._close_op, self._cancel_op = sink.close, sink.cancel
        self._queue_closed_exception_types = (tf.errors.OutOfRangeError,)

    @property
    def name(self) -> str:
        """What messages and threads are called after."""
        return self._name

    def run_in(self, session: Any) -> FeedRun | None:
        """The threads' record in `session`; None if they were not started there."""
        run: FeedRun | None = getattr(session, _RUNS, {}).get(id(self))
        return run

    def create_threads(
        self, sess: Any, coord: Any | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Makes the feed threads for `sess`, as `tf.train.QueueRunner.create_threads` does.

        Called again for a session that has its threads, it returns an empty list.

        Raises:
          UninitializedError: variables have no value yet; the message lists them.
          ForkedError: the process was forked after TensorFlow sessions had run in it.
        """
        refuse_if_forked(f"'{self.name}' (made at {self.made_at})")
        with self._feed_lock:
            if self.run_in(sess) is not None:
                return []
            check_initialized(sess, f"'{self.name}' (made at {self.made_at})")
            run = FeedRun(self.name, self.resume_points(sess), sess, coord)
            run.reset()
            if not hasattr(sess, _RUNS):
                setattr(sess, _RUNS, {})
            getattr(sess, _RUNS)[id(self)] = run
            self._all_runs.add(run)
        try:
            for thread in run.threads:
                thread.daemon = daemon
                if coord is not None:
                    coord.register_thread(thread)
                if start:
                    thread.start()
        except BaseException:
            # A Ctrl-C: whoever asked for the threads does not know yet that it has some to stop.
            if coord is not None:
                coord.request_stop()
            run.stop()
            raise
        return run.threads

    def resume_points(self, session: Any) -> list[tuple[Lane, int]]:
        """Makes the input ready in `session`; returns each lane with the number of its first batch."""
        if self.pipeline is None or self.pipeline.resume != "restart":
            say_where_it_begins(self.name, [lane.source for lane in self.lanes], session)
        if self.pipeline is None:
            return [(lane, 0) for lane in self.lanes]
        points = resume_points(self.pipeline, self.lanes, session)
        if self.pipeline.init is not None:
            session.run(self.pipeline.init)
        if self.pipeline.drops:
            towers = len(points)
            consumed = min(start * towers + tower for tower, (_, start) in enumerate(points))
            drop(session, self.pipeline.drops, consumed, points[0][0])
        return points

    def position_variables(self) -> list[Any]:
        """The variables in which checkpoints keep the positions of this feed."""
        position = self.pipeline.position if self.pipeline is not None else None
        return [] if position is None else list(position.variables)

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """The first exception of each session's threads, as `tf.train.QueueRunner` has it."""
        return [run.error for run in self._all_runs if run.error is not None]


def register(feed: Feed, *, starts: bool = True) -> None:
    """Makes `feed` known to the session helpers of this graph and, if it `starts`, to TensorFlow's."""
    graph = tf.get_default_graph()
    # An attribute of the graph, because a collection would be exported with it.
    if not hasattr(graph, _FEEDS):
        setattr(graph, _FEEDS, [])
    getattr(graph, _FEEDS).append(feed)
    if starts:
        graph.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, feed)


def feeds_of(graph: Any) -> list[Feed]:
    """All feeds that were built in `graph`, in the order in which they were built."""
    return list(getattr(graph, _FEEDS, ()))


def check_initialized(session: Any, what: str) -> None:
    """Raises UninitializedError if a variable of the session's graph has no value."""
    names = uninitialized_names(session.graph)
    if names is None:
        return
    # A position without a value is no fault of the user's: it gets its own when the feeding begins.
    own = {variable.op.name for feed in feeds_of(session.graph) for variable in feed.position_variables()}
    missing = [name.decode() for name in session.run(names) if name.decode() not in own]
    if missing:
        raise UninitializedError(
            f"{what}: its feed threads were to be started before {len(missing)} variable(s) had a value: "
            f"{', '.join(missing)}. Run tf.global_variables_initializer() and tf.local_variables_initializer() "
            f"first, or use StagingSession, which keeps this order."
        )
