"""Builds the graph of a plan, runs it, and notes what happened."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import tensorflow.compat.v1 as tf
from soak.outcome import Outcome, UserError
from soak.plan import Plan
from soak.sources import BrokenDiskError, Pace, SoakSource
from soak.ways import WAYS, Way

import staging_tf1 as staging
from staging_tf1.errors import LeftoverWarning
from staging_tf1.feed.feed import feeds_of
from staging_tf1.sources import GeneratorSource


class Game:
    """The graph of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.raised: list[Exception] = []
        self.parts = self._build()
        self.fails = tf.placeholder_with_default(False, [], name="fails")
        alone = [[tower] for tower in range(plan.towers)] if plan.towers > 1 else []
        # What the loop does: common steps to the end of the data, then each tower alone.
        self.rounds = [list(range(plan.towers)), *alone]
        self._checks = {tuple(towers): self._check(towers) for towers in self.rounds}
        self.step = tf.train.get_or_create_global_step()
        self.advance = tf.assign_add(self.step, 1)
        # Made here, because the first session finalizes the graph.
        self.initializer = tf.global_variables_initializer()
        self.local_initializer = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
        self._pace = Pace(plan.step_pace, f"{plan.seed}/step")

    def _build(self) -> list[Any]:
        plan = self.plan
        source = SoakSource(plan, self.raised)
        skips: dict[str, Any] = {}
        if plan.fault == "ignored":
            skips = dict(ignored_exception_types=(BrokenDiskError,), max_ignored=plan.max_ignored)
        spec = {name: tf.TensorSpec([None], tf.int64) for name in ("id", "double")}
        stream = GeneratorSource(source.as_generator, spec=spec)
        options: dict[str, Any] = dict(capacity=plan.capacity, num_threads=plan.threads, lockstep=plan.lockstep)
        if plan.towers > 1:
            options["devices"] = [f"/device:CPU:{tower % 2}" for tower in range(plan.towers)]
        if plan.kind == "dataset":
            numbers = tf.data.Dataset.range(plan.records).batch(plan.batch)
            return [staging.staged(numbers.map(lambda ids: {"id": ids, "double": 2 * ids}), **options)]
        if plan.kind == "classic":
            queued = staging.CustomRunner(source, queue="fifo", num_threads=plan.threads, **skips).get_inputs()
            return [staging.staged(queued, **options)]
        if plan.is_staged:
            made = staging.staged(stream if plan.streams else source, **options, **skips)
            return list(made) if plan.towers > 1 else [made]
        queue = "shuffle" if plan.kind == "shuffle" else "fifo"
        size = None if plan.kind == "whole" else plan.taken
        seed = 1 if plan.repeatable else None
        runner = staging.CustomRunner(
            source, queue=queue, batch_size=size, num_threads=plan.threads, seed=seed, **skips
        )
        return [runner.get_inputs()]

    def _check(self, towers: list[int]) -> Any:
        """The op that fails a step of `towers` at the moment of the plan."""
        after: list[Any] = []
        if self.plan.moment == "late":
            after = [self.parts[tower]["id"] for tower in towers]
        elif self.plan.moment == "token":
            pipelines = [feed.pipeline for feed in feeds_of(tf.get_default_graph()) if feed.pipeline is not None]
            after = [pipeline.towers[tower].gate.token for pipeline in pipelines for tower in towers]
        with tf.control_dependencies(after):
            # Not tf.debugging.Assert, which complains of a graph that is dropped before it has run.
            return tf.raw_ops.Assert(condition=tf.logical_not(self.fails), data=["made to fail"])

    def fetches(self, towers: list[int]) -> Any:
        """What a step runs that takes from `towers`."""
        return [[self.parts[tower] for tower in towers], self._checks[tuple(towers)], self.advance]

    def play(self, folder: str | None) -> Outcome:
        """One session."""
        before = set(threading.enumerate())
        outcome = Outcome([[] for _ in self.parts], self.raised)
        try:
            with warnings.catch_warnings():
                # Towers that are stopped early have a right to it.
                warnings.simplefilter("ignore", LeftoverWarning)
                with WAYS[self.plan.way](self, outcome, folder) as way:
                    self._loop(outcome, way)
        except Exception as error:
            outcome.error = error
        outcome.threads_left = left_over(before)
        return outcome

    def _loop(self, outcome: Outcome, way: Way) -> None:
        """Steps to the end of each of the rounds, unless the plan stops it."""
        plan = self.plan
        for towers in self.rounds:
            while True:
                number = outcome.steps
                if plan.stop == "request_stop" and way.should_stop():
                    return
                if number == plan.stop_at and self._stops(outcome, way):
                    return
                outcome.steps += 1
                try:
                    values = way.take(towers, number in plan.failing, plan.timeouts.get(number))
                except (tf.errors.InvalidArgumentError, tf.errors.DeadlineExceededError):
                    outcome.failed_steps += 1
                    continue
                except tf.errors.OutOfRangeError:
                    break
                for tower, value in zip(towers, values):
                    assert (2 * value["id"] == value["double"]).all(), "the components of one batch"
                    outcome.got[tower].append(value["id"].tolist())
                self._pace.pause(number)
        outcome.ended = True

    def _stops(self, outcome: Outcome, way: Way) -> bool:
        if self.plan.stop == "exception":
            outcome.user_error = UserError("the loop's own")
            raise outcome.user_error
        if self.plan.stop == "drain":
            way.drain()
            outcome.drained = True
        return self.plan.stop == "break"


def left_over(before: set[threading.Thread]) -> list[str]:
    """The names of the threads that have been started since `before` and still run."""
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        # One that has done its work may still be leaving its last function.
        thread.join(1.0)
    return [thread.name for thread in new if thread.is_alive() and "_EventLoggerThread" not in type(thread).__name__]
