"""The records of a snapshot: plain values, so that a diagnosis can be tested without TensorFlow."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple


class Pending(NamedTuple):
    """A `Session.run` that is still running: its thread, when it began (perf_counter), its fetches and feeds.

    In lockstep a step reads the source before its run. While it does, `reads` names the reader.
    """

    ident: int
    began: float
    fetches: Any
    fed: Any
    reads: str = ""


class Failure(NamedTuple):
    """A run that failed in a thread of the program's own."""

    thread: threading.Thread
    run: Pending
    error: str


@dataclass(frozen=True)
class StepView:
    """A `Session.run` that has not returned."""

    secs: float
    # ", at train.py:41 in main()"; empty if the line is unknown.
    location: str
    # Whether it takes from any store. If not, it only puts or computes.
    takes: bool
    # Where TensorFlow calls Python functions at the moment: "train.py:12 in load()".
    calls: tuple[str, ...] = ()
    # Whether a MonitoredSession makes the run before it starts queue runners and hooks.
    creates_session: bool = False


@dataclass(frozen=True)
class FeederView:
    name: str
    # What it does: one of the constants of `feed.threads`.
    doing: str
    # For how long it has done it.
    secs: float
    # The number of the last batch that its source made; -1 before the first, or if the graph computes the batches.
    batch: int
    # Batches delivered.
    batches: int
    # The mean seconds that the source took for a batch.
    mean_source_secs: float
    location: str
    # What it waits for that is still starting: "worker process 'train:0'". Empty for nothing.
    starting: str = ""
    # The URL that it reads; empty for none.
    url: str = ""


@dataclass(frozen=True)
class StoreView:
    """An area or a queue."""

    # For messages.
    name: str
    # "staged" (an area of `staged()`), "queue", "barrier", "accumulator", or "area" (a plain one).
    kind: str
    # In elements. None: it could not be read.
    size: int | None
    # In elements. 0 is unbounded.
    capacity: int
    # None: unknown, or it cannot be closed.
    closed: bool | None
    # How many elements the step takes at once.
    wanted: int = 0
    # Whether the step puts into it.
    step_puts: bool = False
    min_after_dequeue: int = 0
    # Our feed threads.
    feeders: tuple[FeederView, ...] = ()
    # How many other threads are running a put, if it has no pipeline.
    putters: int = 0
    # The name of its pipeline, if that has several towers.
    pipeline: str = ""
    # The number of its tower there.
    tower: int = 0
    # Batches of this tower that wait for their round.
    withheld: int = 0
    # The inputs of its puts that have ended.
    over: tuple[str, ...] = ()
    # Whether an input may have ended unnoticed, such as a dataset.
    may_be_over: bool = False
    # Whether the step itself fills it.
    lockstep: bool = False
    # Whether a SyncReplicasOptimizer fills it, when it has the gradients of all workers.
    is_sync: bool = False
    # "the tf.data service at HOST:PORT" if its batches come from one; empty if they do not.
    service: str = ""
    # The exception that ended its feeding.
    error: str = ""
    # Whether the graph has an op that puts into it.
    has_put: bool = True
    # Whether the graph has an op that takes from it.
    has_take: bool = True
    # The names of the stores that its puts take from.
    inputs: tuple[str, ...] = ()
    # Whether it has a QueueRunner of TensorFlow's that was never started in this session.
    idle_runner: bool = False
    # The elements of a barrier that lack a component.
    incomplete: int = 0
    # The line that made its put: "train.py:40". Empty if that is not looked for.
    put_at: str = ""
    # Whether processes other than this one may fill it.
    is_remote: bool = False
    # The reader that takes file names from it: "reader 'TFRecordReaderV2'". Empty without one.
    reader: str = ""


@dataclass(frozen=True)
class TaskView:
    # "worker 1".
    name: str
    address: str
    # Seconds since its last sign of life, as far as this task has heard.
    silent_secs: float
    # Why its server does not answer; empty if it does, or was not asked.
    unreachable: str = ""
    # Whether it has ended well.
    finished: bool = False
    is_ps: bool = False


@dataclass(frozen=True)
class Snapshot:
    step: StepView
    stores: tuple[StoreView, ...]
    # Names of uninitialized variables.
    uninitialized: tuple[str, ...] = ()
    # The other tasks of the cluster.
    tasks: tuple[TaskView, ...] = ()
    # Whether ops have a single thread.
    one_op_thread: bool = False
    # What could not be looked at, with the exception.
    unseen: tuple[str, ...] = ()
