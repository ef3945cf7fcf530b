"""The ways to run a graph: StagingSession, its callables, StagingHook, and a plain session with a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow.compat.v1 as tf
from soak.outcome import Outcome
from soak.plan import Plan

import staging_tf1 as staging

# A step that waits longer hangs: no source here takes a hundredth of it.
STALL_SECS = 30.0
QUIET: dict[str, Any] = dict(log_step_count_steps=0, save_summaries_steps=0)


@dataclass(frozen=True)
class Way:
    """What the loop may do."""

    # take(towers, fails, timeout_ms): one step; returns the towers' batches.
    take: Callable[[list[int], bool, int | None], Any]
    should_stop: Callable[[], bool]
    drain: Callable[[], None]
    # Ends the steps of the other threads; None where there is one thread only.
    request_stop: Callable[[], None] | None = None


class RequestsStop(tf.train.SessionRunHook):  # type: ignore[misc]
    """Asks for the stop after so many steps."""

    def __init__(self, after_steps: int) -> None:
        self._left = after_steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._left -= 1
        if self._left == 0:
            run_context.request_stop()


class Preempts(tf.train.SessionRunHook):  # type: ignore[misc]
    """Loses the session, as a machine that is taken away does: before or after a step has run."""

    def __init__(self, plan: Plan, outcome: Outcome) -> None:
        self._plan, self._outcome = plan, outcome
        self._steps = 0

    def before_run(self, run_context: Any) -> None:
        self._preempt(run_context, after=False)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._preempt(run_context, after=True)
        self._steps += 1

    def _preempt(self, run_context: Any, after: bool) -> None:
        # Of common steps only: what one tower takes, after the others have ended, is no beginning.
        common = len(run_context.original_args.fetches[0]) == self._plan.towers
        if (self._steps, after, common) != (self._plan.preempted_at, self._plan.preempted_after, True):
            return
        if self._outcome.recovered:
            return
        self._outcome.begin_again()
        kind = tf.errors.AbortedError if self._plan.seed % 2 else tf.errors.UnavailableError
        raise kind(None, None, "preempted")


def hooks_of(game: Any, outcome: Outcome) -> list[Any]:
    plan = game.plan
    asking = [RequestsStop(plan.stop_at)] if plan.stop == "request_stop" else []
    return asking if plan.preempted_at is None else [*asking, Preempts(plan, outcome)]


def config_of(game: Any) -> Any:
    # A pool of its own: sessions share that of the first one otherwise.
    threads = game.plan.inter_op
    return tf.ConfigProto(
        inter_op_parallelism_threads=threads, use_per_session_threads=threads > 0, device_count={"CPU": 2}
    )


def taking(game: Any, run: Callable[..., Any]) -> Callable[[list[int], bool, int | None], Any]:
    """Take a step with a session's `run`."""
    fetches = {}

    def take(towers: list[int], fails: bool, timeout_ms: int | None) -> Any:
        key = tuple(towers)
        if key not in fetches:
            fetches[key] = game.fetches(towers)
        options = None if timeout_ms is None else tf.RunOptions(timeout_in_ms=timeout_ms)
        return run(fetches[key], {game.fails: fails}, options)[0]

    return take


@contextmanager
def in_session(game: Any, outcome: Outcome, folder: str | None) -> Iterator[Way]:
    session = staging.StagingSession(
        checkpoint_dir=folder,
        hooks=hooks_of(game, outcome),
        config=config_of(game),
        stall_secs=STALL_SECS,
        stall_raises=True,
        **QUIET,
    )
    try:
        with session as sess:
            run = sess.run if game.plan.way == "session" else by_step_fn(sess)
            yield Way(taking(game, run), sess.should_stop, sess.drain)
    finally:
        outcome.stats = session.stats()


def by_step_fn(sess: Any) -> Callable[..., Any]:
    """A `run` that takes the step within a function that MonitoredSession calls."""

    def run(fetches: Any, feed_dict: Any, options: Any) -> Any:
        return sess.run_step_fn(lambda step_context: step_context.run_with_hooks(fetches, feed_dict))

    return run


@contextmanager
def by_callable(game: Any, outcome: Outcome, folder: str | None) -> Iterator[Way]:
    session = staging.StagingSession(config=config_of(game), stall_secs=STALL_SECS, stall_raises=True, **QUIET)
    calls: dict[tuple[int, ...], Any] = {}
    try:
        with session as sess:

            def take(towers: list[int], fails: bool, timeout_ms: int | None) -> Any:
                key = tuple(towers)
                if key not in calls:
                    calls[key] = sess.make_callable(game.fetches(towers), [game.fails])
                return calls[key](fails)[0]

            yield Way(take, sess.should_stop, sess.drain)
    finally:
        outcome.stats = session.stats()


@contextmanager
def with_hook(game: Any, outcome: Outcome, folder: str | None) -> Iterator[Way]:
    hook = staging.StagingHook(stall_secs=STALL_SECS, stall_raises=True)
    try:
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=[hook, *hooks_of(game, outcome)], config=config_of(game), **QUIET
        ) as sess:
            yield Way(taking(game, sess.run), sess.should_stop, hook.drain)
    finally:
        outcome.stats = hook.stats() if outcome.ended else []


@contextmanager
def in_plain_session(game: Any, outcome: Outcome, folder: str | None) -> Iterator[Way]:
    with tf.Session(config=config_of(game)) as sess:
        sess.run([game.initializer, game.local_initializer])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord, stall_secs=STALL_SECS, stall_raises=True)
        asked = RequestsStop(game.plan.stop_at if game.plan.stop == "request_stop" else 0)
        take = taking(game, sess.run)

        def take_and_ask(towers: list[int], fails: bool, timeout_ms: int | None) -> Any:
            values = take(towers, fails, timeout_ms)
            asked.after_run(coord, None)
            return values

        def drain() -> None:
            raise NotImplementedError("a plain session has no drain()")

        try:
            yield Way(
                take_and_ask,
                coord.should_stop,
                drain,
                request_stop=coord.request_stop,
            )
        except tf.errors.OutOfRangeError:
            pass
        finally:
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=10)


WAYS: dict[str, Callable[..., Any]] = {
    "session": in_session,
    "step_fn": in_session,
    "callable": by_callable,
    "hook": with_hook,
    "plain": in_plain_session,
}
