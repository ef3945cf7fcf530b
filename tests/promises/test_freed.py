"""When a session is gone, so are its threads, its pipelines' runs, their sources and the graph."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from running import left_over, run_in

import staging_tf1 as staging
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")


class UserError(Exception):
    """Raised by the user's code in these tests."""


class Sequence(ArraySource):
    """0, 1, 2, ... without an end; a batch may fail."""

    fails_at: int | None = None

    def batch(self, index: int) -> Any:
        if index == self.fails_at:
            raise UserError
        return super().batch(index)


class Failing(tf.train.SessionRunHook):  # type: ignore[misc]
    """Raises in the method with this name. Shows the session to `seen` before."""

    def __init__(self, method: str, seen: Callable[[Any], None]) -> None:
        self._method, self._seen = method, seen

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._seen(session)
        self._raise_in("after_create_session")

    def before_run(self, context: Any) -> None:
        self._raise_in("before_run")

    def after_run(self, context: Any, values: Any) -> None:
        self._raise_in("after_run")

    def end(self, session: Any) -> None:
        self._raise_in("end")

    def _raise_in(self, method: str) -> None:
        if method == self._method:
            raise UserError


def with_hook(method: str) -> Callable[..., None]:
    def steps(x: Any, seen: Callable[[Any], None]) -> None:
        with contextlib.suppress(UserError), staging.StagingSession(hooks=[Failing(method, seen)]) as sess:
            sess.run(x), sess.run(x), sess.run(x)

    return steps


def retried(x: Any, seen: Callable[[Any], None]) -> None:
    """MonitoredSession creates a session again whose hooks were interrupted, and does not close the first one."""
    failures = iter([tf.errors.AbortedError(None, None, "preempted")])

    class Interrupted(Failing):
        def _raise_in(self, method: str) -> None:
            for error in failures:
                raise error

    with staging.StagingSession(hooks=[Interrupted("", seen)]) as sess:
        sess.run(x), sess.run(x), sess.run(x)


def failed_step(x: Any, seen: Callable[[Any], None]) -> None:
    bad = tf.debugging.assert_less(x, tf.zeros_like(x))
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        with staging.StagingSession(hooks=[Failing("", seen)]) as sess:
            sess.run(bad)


def not_closed(x: Any, seen: Callable[[Any], None]) -> None:
    """A plain session whose coordinator has stopped the threads, as in many programs for TensorFlow 1."""
    sess = tf.Session()
    coord = tf.train.Coordinator()
    threads = staging.start(sess, coord)
    seen(sess)
    with contextlib.suppress(UserError):
        with coord.stop_on_exception():
            sess.run(x), sess.run(x), sess.run(x)
        coord.request_stop()
        coord.join(threads)


HOOKS = ("after_create_session", "before_run", "after_run", "end")
WAYS = {
    "closed": with_hook(""),
    "created again": retried,
    "failed step": failed_step,
    "plain, not closed": not_closed,
    **{f"a hook fails in {name}": with_hook(name) for name in HOOKS},
}
# How the batches come, and in which ways.
KINDS = {
    "threads": list(WAYS),
    "lockstep": [way for way in WAYS if not way.startswith("plain")],
    "source fails": ["closed", "plain, not closed"],
}


# Hooks that fail with threads are enough.
@pytest.mark.slow_cases("lockstep-a hook fails in (before_run|after_run|end)")
@pytest.mark.parametrize(("kind", "way"), [(kind, way) for kind, ways in KINDS.items() for way in ways])
def test_what_a_session_held_is_freed(way: str, kind: str) -> None:
    before = set(threading.enumerate())
    held: list[weakref.ref[Any]] = []

    def seen(session: Any) -> None:
        runs = [run_in(session, pipeline) for pipeline in pipelines_of(session.graph)]
        held.extend(weakref.ref(run) for run in runs if run is not None)

    def program() -> None:
        with tf.Graph().as_default() as graph:
            source = Sequence(np.arange(100), batch_size=1, epochs=None)
            source.fails_at = 1 if kind == "source fails" else None
            held.extend((weakref.ref(source), weakref.ref(graph)))
            WAYS[way](staging.staged(source, lockstep=kind == "lockstep"), seen)

    program()
    tf.reset_default_graph()
    gc.collect()
    runs = 0 if kind == "lockstep" else 2 if way == "created again" else 1
    assert len(held) == 2 + runs
    assert left_over(before, grace_secs=10) == []
    gc.collect()
    assert [each() for each in held] == [None] * len(held)
