"""What a system is given to do, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.workloads.workload import Workload

__all__ = ["Step", "System", "Task", "open_session"]

# Runs one training step; gives what the model returned (None for an op).
Step = Callable[[], Any]


@dataclass(frozen=True)
class Task:
    """One workload, to be fed by one system."""

    workload: Workload
    # What `workload.open` gave.
    data: Any
    # From the tensors of a batch to what a step fetches: the workload's own `model`, or what a test looks at.
    model: Callable[[Any], Any]
    # Feed threads, for systems that can have several.
    threads: int = 1
    seed: int = 1
    # A `tf.ConfigProto`; None is TensorFlow's default.
    config: Any = None
    # Where the input ops are pinned; None leaves it to TensorFlow.
    input_device: str | None = None


# Builds a graph, starts whatever feeds it, gives the step, and stops it all at the end of the block. It may raise
# NotApplicable before the block.
System = Callable[[Task], AbstractContextManager[Step]]


def open_session(task: Task) -> Any:
    """A plain `tf.Session` on the default graph, its variables initialised."""
    session = tf.Session(config=task.config)
    session.run(tf.global_variables_initializer())
    return session
