"""Builds the graph of a plan, runs it, and notes what happened."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import tensorflow.compat.v1 as tf
from running import left_over
from soak.loop import MADE_TO_FAIL, CtrlC, Loop
from soak.outcome import Outcome
from soak.pipelines import build
from soak.plan import Plan
from soak.sources import SoakSource
from soak.ways import WAYS

from staging_tf1.errors import LeftoverWarning
from staging_tf1.feed.pipeline import pipelines_of


class Game:
    """The graph of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.raised: list[Exception] = []
        self._ctrl_c = CtrlC()
        source = SoakSource(plan, self.raised, interrupt=self._ctrl_c.send)
        self.parts = build(plan, source)
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

    def _check(self, towers: list[int]) -> Any:
        """The op that fails a step of `towers` at the moment of the plan."""
        after: list[Any] = []
        if self.plan.moment == "late":
            after = [self.parts[tower]["id"] for tower in towers]
        elif self.plan.moment == "token":
            pipelines = [each for each in pipelines_of(tf.get_default_graph()) if each.stages]
            after = [pipeline.sinks[tower].get.take for pipeline in pipelines for tower in towers]
        with tf.control_dependencies(after):
            # Not tf.debugging.Assert, which complains of a graph that is dropped before it has run.
            return tf.raw_ops.Assert(condition=tf.logical_not(self.fails), data=[MADE_TO_FAIL])

    def fetches(self, towers: list[int]) -> Any:
        """What a step runs that takes from `towers`."""
        return [[self.parts[tower] for tower in towers], self._checks[tuple(towers)], self.advance]

    def play(self, folder: str | None) -> Outcome:
        """One session."""
        before = set(threading.enumerate())
        outcome = Outcome([[] for _ in self.parts], self.raised)
        try:
            with warnings.catch_warnings(), self._ctrl_c.expected():
                # Towers that are stopped early have a right to it.
                warnings.simplefilter("ignore", LeftoverWarning)
                with WAYS[self.plan.way](self, outcome, folder) as way, self._ctrl_c.in_loop():
                    Loop(self.plan, self.rounds, outcome, way).run()
        except (Exception, KeyboardInterrupt) as error:
            outcome.error = error
        outcome.interrupted = self._ctrl_c.sent
        outcome.threads_left = left_over(before, grace_secs=1.0)
        return outcome
