"""The interface between workloads and systems: a system takes a case and returns a step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.workloads.workload import Workload

__all__ = ["Step", "System", "Case", "open_session"]

# Runs one training step; returns the fetched values of the model (None for an op).
Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One workload, to be fed by one system."""

    workload: Workload
    # The return value of `workload.open`.
    data: Any
    # Takes the tensors of a batch and returns the fetches of a step: the workload's `model`, or a function of a test.
    model: Callable[[Any], Any]
    # The number of feed threads, for systems that support several.
    threads: int = 1
    seed: int = 1
    # A `tf.ConfigProto`; None uses TensorFlow's default.
    config: Any = None
    # The device of the input ops; None leaves the choice to TensorFlow.
    input_device: str | None = None


# Builds a graph, starts its feeds, yields the step, and stops the feeds at the end of the block. It may raise
# NotApplicable before the block.
System = Callable[[Case], AbstractContextManager[Step]]


def open_session(case: Case) -> Any:
    """Return a plain `tf.Session` on the default graph, with initialized variables."""
    session = tf.Session(config=case.config)
    session.run(tf.global_variables_initializer())
    return session
