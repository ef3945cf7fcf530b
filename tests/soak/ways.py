"""The ways to run a graph: StagingSession, its callables, StagingHook, and a plain session with a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow.compat.v1 as tf
from soak.outcome import Outcome

import staging_tf1 as staging

# A step that waits longer hangs: no source here takes a hundredth of it.
STALL_SECS = 30.0
_MONITORED: dict[str, Any] = dict(log_step_count_steps=0, save_summaries_steps=0)


@dataclass(frozen=True)
class Way:
    """What the loop may do."""

    # take(towers, fails, timeout_ms): one step; returns the towers' batches.
    take: Callable[[list[int], bool, int | None], Any]
    should_stop: Callable[[], bool]
    drain: Callable[[], None]


class RequestsStop(tf.train.SessionRunHook):  # type: ignore[misc]
    """Asks for the stop after so many steps."""

    def __init__(self, after_steps: int) -> None:
        self._left = after_steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._left -= 1
        if self._left == 0:
            run_context.request_stop()


def hooks_of(game: Any) -> list[Any]:
    return [RequestsStop(game.plan.stop_at)] if game.plan.stop == "request_stop" else []


def config_of(game: Any) -> Any:
    return tf.ConfigProto(inter_op_parallelism_threads=game.plan.inter_op, device_count={"CPU": 2})


def taking(game: Any, run: Callable[..., Any]) -> Callable[[list[int], bool, int | None], Any]:
    """Takes a step with a session's `run`."""
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
        hooks=hooks_of(game),
        config=config_of(game),
        stall_secs=STALL_SECS,
        stall_raises=True,
        **_MONITORED,
    )
    try:
        with session as sess:
            yield Way(taking(game, sess.run), sess.should_stop, sess.drain)
    finally:
        outcome.stats = session.stats()


@contextmanager
def by_callable(game: Any, outcome: Outcome, folder: str | None) -> Iterator[Way]:
    session = staging.StagingSession(config=config_of(game), stall_secs=STALL_SECS, stall_raises=True, **_MONITORED)
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
            checkpoint_dir=folder, hooks=[hook, *hooks_of(game)], config=config_of(game), **_MONITORED
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
            yield Way(take_and_ask, coord.should_stop, drain)
        except tf.errors.OutOfRangeError:
            pass
        finally:
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=10)


WAYS: dict[str, Callable[..., Any]] = {
    "session": in_session,
    "callable": by_callable,
    "hook": with_hook,
    "plain": in_plain_session,
}
