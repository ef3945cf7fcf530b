"""`Observer`: takes snapshots of a session, without waiting for anything that is stuck in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from staging_tf1._tf import has_one_op_thread, run_unwrapped, runner_threads, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.layout import Task
from staging_tf1.cluster.reach import why_silent
from staging_tf1.feed.pipeline import Pipeline, cluster_of
from staging_tf1.feed.queue_runner import PipelineRunner
from staging_tf1.feed.source_errors import text_of
from staging_tf1.feed.threads import PARKED, ThreadState
from staging_tf1.graph.dependencies import ancestors, can_end, elements_of, ops_of_run, service_behind
from staging_tf1.graph.probes import Probe, Touched, area_key, keys_awaited, probes_of, reader_of, touched_by
from staging_tf1.graph.sink import queue_key
from staging_tf1.graph.state import feeding_in
from staging_tf1.graph.sync_tokens import is_sync_token_queue
from staging_tf1.graph.uninitialized import uninitialized_names
from staging_tf1.watch.thread_location import functions_called_by_ops, is_in, url_awaited, users_location
from staging_tf1.watch.views import FeederView, Pending, Snapshot, StepView, StoreView, TaskView
from staging_tf1.workers.process import starting_for

# Long enough for a busy machine, short enough for a report.
_TIMEOUT_MS = 2000
_ONLY_READ = frozenset({"VarHandleOp", "ReadVariableOp", "VariableV2", "Placeholder"})
# Initializes or restores the variables for a MonitoredSession and a Supervisor.
_CREATES_SESSIONS = tf.train.SessionManager.prepare_session.__code__.co_filename


class Observer:
    """Takes snapshots of one session. Must be created before the graph is finalized, because it makes ops."""

    def __init__(self, graph: Any, pipelines: Sequence[Pipeline]) -> None:
        self._graph, self.pipelines = graph, tuple(pipelines)
        self.probes: dict[str, Probe] = {}
        self._make_ops()

    def _make_ops(self) -> None:
        self.probes = probes_of(self._graph, _hidden(self.pipelines))
        # No op is added after the graph is finalized.
        self._all = touched_by(self._graph.get_operations())
        self._uninitialized = uninitialized_names(self._graph)

    def touches(self, pending: Pending) -> Touched:
        try:
            return touched_by(ops_of_run(self._graph, pending.fetches, list(pending.fed or ())).values())
        except (KeyError, TypeError, ValueError):
            # Only Session.run understands these fetches.
            return Touched({}, frozenset())

    def keys_awaited(self, session: Any, pending: Pending, probe: Probe) -> list[dict[Any, Any]]:
        """Return the feeds of `probe.wake_key` for the keys that the gets and peeks of a run may wait for.

        A key that cannot be computed again without an effect is left out. A get without a key takes any.
        """
        fed = pending.fed if isinstance(pending.fed, Mapping) else {}
        keys = keys_awaited(ops_of_run(self._graph, pending.fetches, list(fed)).values(), probe.key)
        cut = {element.name for element in elements_of(self._graph, list(fed))}
        again = [key for key in keys if not any(_has_effect(op) for op in ancestors([key], cut))]
        found = read(session, again, fed) if again else None
        return [{probe.wake_key: key} for key in found or ([] if keys else [0])]

    def snapshot(
        self,
        session: Any,
        step: Pending,
        others: Iterable[Pending] = (),
        readers: Mapping[str, ThreadState] | None = None,
    ) -> Snapshot:
        """Return the state of `session` while `step` waits.

        Args:
          step: the run that waits.
          others: the runs of other threads.
          readers: in lockstep, the states of the readers by name.
        """
        reader = (readers or {}).get(step.reads)
        touched = self.touches(step)
        putting = [self.touches(other).puts for other in others]
        looks = _Looks()
        stores: list[StoreView] = []
        for pipeline in self.pipelines:
            stores += looks.at(str(pipeline), [], self._staged, pipeline, session, touched, reader)
        seen = {queue_key(sink.queue) for pipeline in self.pipelines for sink in pipeline.sinks}
        for key, probe in self.probes.items():
            # A synchronous optimizer has an accumulator for each variable.
            if key not in seen and (probe.kind != "accumulator" or key in touched.takes):
                putters = sum(key in puts for puts in putting) + _queue_runners(probe)
                view = looks.at(probe.name, None, self._raw, probe, session, touched, putters)
                stores += [] if view is None else [view]
        secs = time.perf_counter() - step.began
        location = looks.at("the threads", "", users_location, step.ident)
        stalled = StepView(
            secs,
            location,
            bool(step.reads or touched.takes),
            looks.at("the functions of its ops", (), functions_called_by_ops),
            looks.at("the threads", False, is_in, step.ident, _CREATES_SESSIONS),
        )
        cluster = cluster_of(self.pipelines)
        tasks = () if cluster is None else looks.at("the cluster", (), _tasks_of, cluster)
        missing = looks.at("the variables", (), self._missing, session)
        one_op_thread = looks.at("the config", False, has_one_op_thread, session)
        return Snapshot(stalled, tuple(stores), missing, tasks, one_op_thread, tuple(looks.failed))

    def _staged(
        self, pipeline: Pipeline, session: Any, touched: Touched, reader: ThreadState | None
    ) -> list[StoreView]:
        running = feeding_in(session)
        run = None if running is None else running.runs.get(pipeline)
        views = []
        barrier = run.delivery.barrier if run is not None else None
        withheld = barrier.withheld() if barrier is not None else [0] * len(pipeline.sinks)
        for tower, sink in enumerate(pipeline.sinks):
            key = queue_key(sink.queue)
            probe = self.probes.get(key)
            reads = reader is not None and reader.name == f"lockstep:{sink.name}"
            feeding = [] if run is None else [state for state in run.states_of(tower) if state.doing != PARKED]
            if reader is not None and reads:
                feeding = [reader]
            size = read(session, sink.size)
            views.append(
                StoreView(
                    name=f"'{sink.name}' (made at {pipeline.plan.made_at})",
                    kind="staged" if pipeline.stages else "queue",
                    size=None if size is None else int(size),
                    capacity=sink.capacity,
                    closed=_closed(session, probe),
                    wanted=1 if reads else touched.takes.get(key, 0),
                    min_after_dequeue=probe.min_after_dequeue if probe is not None else 0,
                    feeders=tuple(_feeder(state) for state in feeding),
                    pipeline=pipeline.name if len(pipeline.sinks) > 1 else "",
                    tower=tower,
                    withheld=withheld[tower],
                    lockstep=pipeline.lockstep,
                    service=service_behind(sink.put.op),
                    error=first_line_of(run.error) if run is not None else "",
                )
            )
        return views

    def _raw(self, probe: Probe, session: Any, touched: Touched, putters: int) -> StoreView:
        size = read(session, probe.size)
        over, may_be_over = self._over(probe, session) if probe.kind == "area" else ((), False)
        runner = _runner_of(self._graph, probe)
        reader = reader_of(self._graph.get_operations(), probe.key)
        return StoreView(
            name=self._name(probe),
            kind=probe.kind,
            size=None if size is None else int(size),
            capacity=probe.capacity,
            closed=_closed(session, probe),
            wanted=touched.takes.get(probe.key, 0),
            step_puts=probe.key in touched.puts,
            min_after_dequeue=probe.min_after_dequeue,
            putters=putters,
            error=self._error(probe, runner, session),
            idle_runner=runner is not None and runner_threads(runner, session) is None,
            inputs=self._inputs(probe),
            incomplete=0 if probe.incomplete is None else int(read(session, probe.incomplete) or 0),
            put_at=self._put_at(probe),
            is_remote=bool(session.sess_str),
            reader="" if reader is None else f"reader '{reader.name}'",
            over=over,
            may_be_over=may_be_over,
            is_sync=probe.kind == "queue" and is_sync_token_queue(self._graph.get_operation_by_name(probe.key)),
            has_put=probe.key in self._all.puts,
            has_take=probe.key in self._all.takes,
        )

    def _name(self, probe: Probe) -> str:
        return probe.name

    def _error(self, probe: Probe, runner: Any, session: Any) -> str:
        """Describe what ended the feeding of a queue that is not ours; empty for nothing known."""
        return first_line_of(runner.exceptions_raised[-1]) if runner is not None and runner.exceptions_raised else ""

    def _put_at(self, probe: Probe) -> str:
        return ""

    def _puts(self, probe: Probe) -> list[Any]:
        return [op for op in self._graph.get_operations() if probe.key in touched_by([op]).puts]

    def _inputs(self, probe: Probe) -> tuple[str, ...]:
        """Return the names of the stores that the puts of a store take from."""
        takes = touched_by(ancestors(self._puts(probe))).takes
        return tuple(self._name(self.probes[key]) for key in takes if key in self.probes)

    def _over(self, probe: Probe, session: Any) -> tuple[tuple[str, ...], bool]:
        """Return the ended queues, if every put into the area takes from one, and whether other input may have ended.

        The second result is for input whose end cannot be observed, such as a dataset.
        """
        puts = self._puts(probe)
        ending = [[op for op in ancestors([put]) if can_end(op)] for put in puts]
        over: dict[str, None] = {}
        for ops in ending:
            ended = [name for op in ops if (name := self._ended_queue(op, session))]
            if not ended:
                return (), any(not op.type.startswith("QueueDequeue") for ops in ending for op in ops)
            over.update(dict.fromkeys(ended))
        return tuple(over), False

    def _ended_queue(self, op: Any, session: Any) -> str:
        """Describe the queue of a dequeue that can no longer succeed; empty if it can."""
        takes = touched_by([op]).takes
        probe = self.probes.get(next(iter(takes), ""))
        if probe is None or not _closed(session, probe):
            return ""
        size, wanted = read(session, probe.size), 1 if "UpTo" in op.type else takes[probe.key]
        return f"{probe.name} is closed and holds {size}" if size is not None and int(size) < wanted else ""

    def _missing(self, session: Any) -> tuple[str, ...]:
        names = read(session, self._uninitialized) if self._uninitialized is not None else None
        return () if names is None else tuple(name.decode() for name in names)


class _Looks:
    """Looks at one thing after the other: what cannot be looked at must not hide the rest."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def at(self, subject: str, otherwise: Any, look: Callable[..., Any], *args: Any) -> Any:
        """Return `look(*args)`; or `otherwise`, and note why."""
        try:
            return look(*args)
        except Exception as error:
            self.failed.append(f"{subject}: {first_line_of(error)}")
            return otherwise


def read(session: Any, fetches: Any, feed_dict: Any = None) -> Any | None:
    """Return the value of `fetches`, which must not wait; None if the run fails.

    Runs in the calling thread, because raw gets that wait may hold every thread of TensorFlow's pool.
    """
    options = tf.RunOptions(timeout_in_ms=_TIMEOUT_MS, inter_op_thread_pool=-1)
    try:
        return run_unwrapped(session, fetches, feed_dict, options)
    except (tf.errors.OpError, RuntimeError):
        return None


def _has_effect(op: Any) -> bool:
    """Whether another run of `op` may change something or wait."""
    return op.op_def.is_stateful and op.type not in _ONLY_READ


def _hidden(pipelines: Iterable[Pipeline]) -> set[str]:
    """Return the keys of the queues and areas inside the pipelines, which are invisible to the user."""
    sinks = [sink for pipeline in pipelines for sink in pipeline.sinks]
    areas = {area_key(sink.area.name) for sink in sinks if sink.area is not None}
    return areas | {queue_key(queue) for sink in sinks for queue in sink.inner_queues}


def _closed(session: Any, probe: Probe | None) -> bool | None:
    if probe is None or probe.closed is None:
        return None
    closed = read(session, probe.closed)
    return None if closed is None else bool(closed)


def _feeder(state: ThreadState) -> FeederView:
    ident = state.thread.ident if state.thread is not None else None
    return FeederView(
        name=state.name,
        doing=state.doing,
        secs=time.perf_counter() - state.since,
        batch=state.batch,
        batches=state.batches,
        mean_source_secs=state.source_secs / max(1, state.batches),
        location=users_location(ident),
        starting=starting_for(ident),
        url=url_awaited(ident),
    )


def first_line_of(error: BaseException | None) -> str:
    """Return the type of an exception and the first line of its text; empty for None."""
    if error is None:
        return ""
    lines = text_of(error).splitlines()
    if lines[:1] == ["Graph execution error:"]:
        # TensorFlow puts the stack of the op in front of its message.
        lines = lines[next((number + 1 for number, line in enumerate(lines) if line.startswith("Node: ")), 0) :]
    return f"{type(error).__name__}: {next(iter(lines), '')}"


def _queue_runners(probe: Probe) -> int:
    """Count TensorFlow's runner threads of a queue, which are named after it."""
    prefix = f"QueueRunnerThread-{probe.key}-"
    return sum(thread.name.startswith(prefix) for thread in threading.enumerate())


def _runner_of(graph: Any, probe: Probe) -> Any | None:
    """Return TensorFlow's runner of a queue, one with an exception first; None without a runner."""
    runners = [
        runner
        for runner in graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        if not isinstance(runner, PipelineRunner) and _key_of(runner) == probe.key
    ]
    return next((runner for runner in runners if runner.exceptions_raised), next(iter(runners), None))


def _key_of(runner: Any) -> str:
    """Return the key of what a runner fills: a queue, or the barrier of a `SequenceQueueingStateSaver`."""
    queue = runner.queue
    handle = getattr(queue, "queue_ref", None)
    handle = getattr(queue, "barrier_ref", None) if handle is None else handle
    return "" if handle is None else str(handle.op.name)


def _tasks_of(cluster: Cluster) -> tuple[TaskView, ...]:
    """Ask the parameter servers, and return the views of all other tasks."""
    layout = cluster.layout
    # Without it, what a worker knows of the others may be old.
    with suppress(tf.errors.OpError):
        cluster.member.read()
    others = [task for task in (*layout.servers, *layout.workers) if task != layout.task]
    return tuple(_task(cluster, task) for task in others)


def _task(cluster: Cluster, task: Task) -> TaskView:
    member, is_ps = cluster.member, task.job == "ps"
    return TaskView(
        name=str(task),
        address=cluster.layout.address(task),
        silent_secs=member.signs.silent_secs(task),
        unreachable=(is_ps and why_silent(cluster.layout, task)) or "",
        finished=member.has_finished(task),
        is_ps=is_ps,
    )
