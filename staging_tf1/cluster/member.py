"""`Member`: what this task tells the others through the ledger, and what it learns from them.

Entries of the ledger, each written by one task only::

    run               the chief: the id and state of the run (starting, initialized, failed, ended), the cluster, and a
                      digest of its variables
    ready/PIPELINE    the chief: the id of the run for which the position of that pipeline is right, and what its input
                      must have in common in all workers
    fence/WORKER      that worker: a key that its steps must show; the chief removes it when a new run begins, and
                      when it gives the worker's batches to others
    task/TASK         each task: its process, the id of its run, and a number that counts up every few seconds; the
                      chief's tells for how long which workers have been silent
    joined/WORKER     each worker, in synchronous training: the id of the run that it has joined
    ended/WORKER      each worker, in synchronous training: the id of the run in which its data has ended
    done/WORKER       each worker: the id of the run that it has finished
    layout/PS         each parameter server: its process, and the addresses of all tasks as it knows them
    left/PS           each parameter server: the id of the run that it has seen the end of
    pause             the chief: all workers stand still; see `pause.py`
    still/WORKER      each worker: the id of the pause, and whether it stands still
    away/WORKER       each worker: the process that takes no further steps
    ask/..., lease/..., deal/...  see `dealing.Names`

A run begins when the chief initializes or restores the variables, and ends when all workers have finished. A chief that
restarts in the middle continues the run.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Protocol

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.cluster.addresses import Addresses
from staging_tf1.cluster.clock import TICK_SECS, Clock
from staging_tf1.cluster.connection import RECOVERED
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.ledger import Ledger
from staging_tf1.cluster.pause import PAUSE, Pauses
from staging_tf1.cluster.reach import await_servers, is_listening
from staging_tf1.cluster.server_watch import ServerWatch
from staging_tf1.cluster.shared_input import Input, check_same_input
from staging_tf1.cluster.signs import Pulse, Signs, beat_secs
from staging_tf1.cluster.waiting import Patience, wait_until
from staging_tf1.errors import ClusterError

_CHECK_SECS = 1.0
# How long a chief that restores the model waits for a step that is under way. It may hang on a server that is lost.
_BEGIN_SECS = 2.0


class SharedInput(Protocol):
    """What a pipeline with dynamic shares has in this task."""

    def stop(self) -> None:
        """End its threads. May be called again."""

    def give_back(self) -> None:
        """Let others have the batches that this task has been given and has not consumed."""


class Member:
    """This task's part in the runs of its cluster. `sync` is whether workers wait for each other in each step.

    Attributes:
      run_id: the id of the run that this task has begun, continued or joined.
      variables: the digest of the variables in the chief's graph, as of the run; None if unknown.
      fence_key: that of `take_fence`.
      signs: when each task last gave a sign of life.
      pauses: in which the cluster stands still.
      gate: where the runs of this task's sessions wait meanwhile.
      on_news: called with all entries of the ledger every few seconds, or None.
    """

    def __init__(
        self,
        layout: Layout,
        ledger: Ledger,
        silence_secs: float,
        start_secs: float,
        *,
        sync: bool = False,
        clock: Clock | None = None,
    ) -> None:
        assert layout.task is not None
        self.layout, self.task = layout, layout.task
        self.silence_secs, self._start_secs = silence_secs, start_secs
        self.clock = clock or Clock()
        self.signs = Signs(layout, silence_secs, start_secs, self.clock)
        self.on_news: Callable[[dict[str, Any]], None] | None = None
        self.pauses = Pauses(layout, ledger, self.signs, self.clock, silence_secs)
        self.gate = self.pauses.gate
        self.ledger = ledger
        secs = min(beat_secs(layout.num_workers, sync=sync), silence_secs / 4)
        self._pulse = Pulse(f"cluster:{self.task}", secs, self._beat)
        self._servers = ServerWatch(layout, self.signs, self.clock, self._pulse, silence_secs, start_secs, secs)
        # A thread of its own: that of the signs waits for the ledger.
        self._ticks = Pulse("cluster:clock", TICK_SECS, lambda number: self.clock.now())
        self.addresses = Addresses(layout)
        self._silent_secs = 2 * secs
        self._process = uuid.uuid4().hex
        self.run_id: str | None = None
        self.variables: str | None = None
        self.fence_key = ""
        self._inputs: dict[str, SharedInput] = {}
        self._finished: set[str] = set()
        self._is_started = False
        # Held for a moment only. A session that is collected as garbage is closed in any thread, also in one that has
        # just been started, or is waited for.
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start to give signs of life. May be called again."""
        with self._lock:
            was_started, self._is_started = self._is_started, True
        if was_started:
            return
        self.signs.forget()
        # Until now nobody has looked at the clock.
        self._servers.restart()
        self._ticks.start()
        self._pulse.start()
        if self.task in self.layout.workers:
            self.pauses.start()
        # A thread in a run of TensorFlow must not outlive the interpreter.
        atexit.register(self.stop)
        if not self._is_started:
            # One of the threads has stopped this task before the last of them began.
            self.stop()

    def stop(self) -> None:
        """Stop giving signs of life, and disconnect. May be called again."""
        self._is_started = False
        for shared_input in self._inputs.values():
            shared_input.stop()
        self._pulse.stop()
        self._ticks.stop()
        if self.pauses.is_watching:
            with suppress(tf.errors.OpError):
                self.ledger.write({f"away/{self.task}": self._process})
            self.pauses.stop()
        self.ledger.close()
        atexit.unregister(self.stop)

    def _beat(self, number: int) -> None:
        """Give a sign of life, and pass on the news."""
        sign = {**self._identity, "beat": number, "run": self.run_id}
        try:
            if self._reads_all:
                self.ledger.write({f"task/{self.task}": {**sign, "silent": self._silent()}})
                entries = self.read()
                if self.task == self.layout.chief:
                    self.pauses.meet()
                on_news = self.on_news
                if on_news is not None:
                    on_news(entries)
            else:
                # Most tasks are workers: if each read the signs of all, the work of the server would be quadratic.
                watched = [f"task/{task}" for task in (self.layout.chief, *self.layout.servers)]
                watched += self.addresses.wanted()
                self._note(self.ledger.write_and_read({f"task/{self.task}": sign}, watched))
            if self.task.job == "ps" and not self.addresses.have_told(self.task, self._process):
                self.tell_addresses()
        except (tf.errors.OpError, RuntimeError) as error:
            logging.vlog(1, "%s: no news: %s", self.task, error)
        self._servers.break_with_silent()

    def tell_addresses(self) -> None:
        """Tell, on a parameter server, the addresses that it knows."""
        self.ledger.write({f"layout/{self.task}": {**self._identity, "jobs": self.addresses.jobs}})

    @property
    def _reads_all(self) -> bool:
        """Whether each sign of life of this task reads those of all others."""
        return self.task == self.layout.chief or self.on_news is not None

    def _silent(self) -> dict[str, float]:
        """Return which workers have begun and are silent, for those tasks that do not read the signs of all."""
        known = {task: self.signs.silent_secs(task) for task in self.layout.workers if self.signs.knows(task)}
        return {str(task): secs for task, secs in known.items() if secs > self._silent_secs and task != self.task}

    @property
    def _identity(self) -> dict[str, Any]:
        return {"process": self._process, "host": socket.gethostname(), "pid": os.getpid()}

    def read(self) -> dict[str, Any]:
        """Return all entries of the ledger, and take note of the signs of life among them.

        Each entry costs the server time. To wait for a few of them, use `await_entries` with their names.
        """
        entries = self.ledger.read()
        self._note(entries)
        self._finished = {
            str(task) for task in self.layout.workers if entries.get(f"done/{task}") == self.run_id is not None
        }
        return entries

    def _note(self, entries: dict[str, Any]) -> None:
        """Take note of the signs of life, and of the addresses that parameter servers have told."""
        chief = entries.get(f"task/{self.layout.chief}", {})
        self.signs.note(entries, None if self._reads_all else chief.get("silent"))
        self._servers.note_answer()
        self.addresses.note(entries)

    def check_layout(self, *, read: bool = False) -> None:
        """Raise ClusterError if a parameter server has told other addresses. With `read`, look at the ledger first."""
        if self.task.job == "ps":
            # It compares with the chief's; see `await_end`.
            return
        if read:
            self.addresses.note(self.ledger.read([f"layout/{server}" for server in self.layout.servers]))
        self.addresses.check()

    def await_servers(self) -> None:
        """Wait until the parameter servers answer. The other workers are told if the chief waits in vain.

        Raises:
          ClusterError: one does not answer, or has other addresses.
        """
        self.check_servers()
        looks = self._ticks.is_beating
        first = self.layout.servers[0]

        def patience() -> Patience:
            # A parameter server that has other addresses than the chief ends.
            if is_listening(self.layout, first):
                with suppress(tf.errors.OpError):
                    self.check_layout(read=True)
            return self.patience() if looks else Patience(self._start_secs)

        with self.telling_failures() if self.task == self.layout.chief else nullcontext():
            await_servers(self.layout, self.layout.servers, patience, self.clock if looks else None)
            self.check_layout(read=True)

    def check_servers(self) -> None:
        """Raise ClusterError if a parameter server has been silent for longer than this task waits."""
        self._servers.check()

    def has_finished(self, task: Task) -> bool:
        """Return whether `task` has finished the present run, as far as this task knows."""
        return str(task) in self._finished

    # The chief.

    def continues_run(self) -> bool:
        """Whether a run is under way, whose variables a restarted chief must not touch."""
        run = self.ledger.read(["run"]).get("run")
        if run is None or run["state"] != "initialized" or self.layout.differences(run["cluster"]):
            return False
        self.run_id, self.variables = run["id"], run.get("variables")
        # The pause of a chief that was killed.
        self.ledger.remove([PAUSE])
        return True

    def begin_run(self, variables: str | None = None) -> None:
        """Begin a new run. Steps of workers that belong to an earlier one fail from now on.

        Args:
          variables: a digest of the variables in the chief's graph; None if it is that of the run before, or unknown.
        """
        self.run_id = uuid.uuid4().hex
        self.variables = variables or self.variables
        entries = self.ledger.read()
        self.ledger.remove([name for name in entries if not name.startswith(("task/", "layout/"))])
        self.ledger.write({"run": self._run("starting")})
        stepping = [
            task
            for task in self.layout.workers
            if task != self.task and (f"fence/{task}" in entries or entries.get(f"task/{task}", {}).get("run"))
        ]
        if stepping:
            # A step that has passed its fence before would apply its gradient to the restored model.
            with self.pauses.pause(_BEGIN_SECS, only=stepping):
                return

    def mark_initialized(self, ready: Mapping[str, Input] | None = None) -> None:
        """Tell the workers that the variables have their values, and the pipelines that are `ready` their positions."""
        entries = {f"ready/{name}": {"run": self.run_id, "input": own} for name, own in (ready or {}).items()}
        self.ledger.write({**entries, "run": self._run("initialized")})

    def check_inputs(self, inputs: Mapping[str, Input]) -> None:
        """Raise ClusterError if a pipeline of a chief that continues a run has another input than the chief before."""
        entries = self.ledger.read([f"ready/{name}" for name in inputs])
        for name, own in inputs.items():
            self._has_same_input(name, own, entries, "the run that is under way")

    def _has_same_input(self, name: str, own: Input, entries: dict[str, Any], other: str) -> bool:
        """Check what the chief has told of a pipeline's input. Return whether it has told."""
        entry = entries.get(f"ready/{name}")
        if entry is not None:
            check_same_input(name, own, entry["input"], str(self.task), other)
        return entry is not None

    @contextmanager
    def telling_failures(self) -> Iterator[None]:
        """Return a context in which the chief begins. The workers, which wait for it, are told of an error."""
        try:
            yield
        except RECOVERED:
            raise
        except Exception as error:
            with suppress(tf.errors.OpError):
                self._mark_failed(error)
            raise

    def _mark_failed(self, error: Exception) -> None:
        run = self.ledger.read(["run"]).get("run")
        if run is not None and run["state"] == "initialized" and run["id"] != self.run_id:
            # The others train in a run of an earlier chief, and do not need this one.
            return
        self.ledger.write({"run": self._run("failed", f"{type(error).__name__}: {error}")})

    def _run(self, state: str, why: str = "") -> dict[str, Any]:
        contents = {"why": why, "cluster": self.addresses.jobs, "variables": self.variables}
        return {"id": self.run_id, "state": state, **contents, **self._identity}

    def await_workers(self, check: Callable[[], None] = lambda: None) -> list[Task]:
        """Wait until every other worker has finished. Return those that have not, and are silent.

        `check` is called now and then, and raises if the variables are lost, as this does if the ledger is.
        """
        next_check = self.clock.now() + _CHECK_SECS

        def unfinished(entries: dict[str, Any]) -> list[Task]:
            others = (task for task in self.layout.workers if task != self.task)
            return [task for task in others if entries.get(f"done/{task}") != self.run_id]

        def over(entries: dict[str, Any]) -> bool:
            nonlocal next_check
            if self.run_id is not None and self._has_moved_on(entries):
                raise ClusterError(model_lost(self.task, f"{self.layout.servers[0]} has restarted"))
            if self.clock.now() > next_check:
                check()
                next_check = self.clock.now() + _CHECK_SECS
            return all(map(self.signs.is_gone, unfinished(entries)))

        entries = self.await_entries(over, lambda entries: ", ".join(map(self.signs.described, unfinished(entries))))
        return unfinished(entries)

    def leads(self, entries: dict[str, Any], run_id: str | None) -> bool:
        """Whether that run is under way, and this process is its chief."""
        run = entries.get("run")
        return run is not None and (run["id"], run["state"], run["process"]) == (run_id, "initialized", self._process)

    # Every worker.

    def await_run(self, pipelines: Mapping[str, Input], secs: float) -> str:
        """Wait until the chief has initialized the variables and the positions. Return the id of the run.

        Raises:
          ClusterError: it takes longer, or the chief has another input or describes the cluster differently.
        """
        end = self.clock.now() + secs

        def is_ready(entries: dict[str, Any]) -> bool:
            run = entries.get("run")
            if run is None or run["state"] == "ended":
                return False
            self.addresses.check_chief(run)
            if run["state"] == "failed":
                raise ClusterError(f"{self.layout.chief} could not begin: {run['why']}")
            current = {name: entry for name, entry in entries.items() if name == "run" or entry["run"] == run["id"]}
            ready = [self._has_same_input(name, own, current, "the chief") for name, own in pipelines.items()]
            return run["state"] == "initialized" and all(ready)

        chief = self.layout.chief
        waits_for = f"{chief} at {self.layout.address(chief)} to initialize or restore the variables"

        def waiting_for(entries: dict[str, Any]) -> str:
            if self.clock.now() > end:
                raise ClusterError(
                    f"{self.task} has waited {secs:.0f} s for {waits_for}. Start {chief}, or see its log."
                )
            return waits_for

        entries = self.await_entries(is_ready, waiting_for, ["run", *(f"ready/{name}" for name in pipelines)])
        self.run_id, self.variables = entries["run"]["id"], entries["run"].get("variables")
        return str(self.run_id)

    def await_everybody(self, secs: float) -> None:
        """Wait until all workers have joined the run. Otherwise the first would make the steps of the others.

        Raises:
          ClusterError: it takes longer than `secs` seconds; the message names who is missing.
        """
        self.ledger.write({f"joined/{self.task}": self.run_id})
        end = self.clock.now() + secs

        def missing(entries: dict[str, Any]) -> list[Task]:
            return [task for task in self.layout.workers if entries.get(f"joined/{task}") != self.run_id]

        def waiting_for(entries: dict[str, Any]) -> str:
            named = ", ".join(map(self.signs.described, missing(entries)))
            if self.clock.now() > end:
                raise ClusterError(f"{self.task} has waited {secs:.0f} s for {named}, to train in step. Start them.")
            return f"{named}, to train in step"

        self.await_entries(lambda entries: not missing(entries) or self._has_moved_on(entries), waiting_for)

    def _has_moved_on(self, entries: dict[str, Any]) -> bool:
        run = entries.get("run")
        return run is None or run["id"] != self.run_id

    def is_current(self, run_id: str) -> bool:
        """Whether the run is still under way."""
        run = self.ledger.read(["run"]).get("run")
        return run is not None and run["id"] == run_id and run["state"] == "initialized"

    def take_fence(self) -> str:
        """Let this process step for its task, and no other process. Return the fence key that its steps must show."""
        self.fence_key = uuid.uuid4().hex
        # It may have finished before, and have been started again.
        self.ledger.remove([f"{word}/{self.task}" for word in ("done", "ended", "away")])
        self.ledger.write({f"fence/{self.task}": self.fence_key})
        return self.fence_key

    def register(self, pipeline: str, shared: SharedInput) -> None:
        """Keep what a pipeline with dynamic shares has in this task, until the end. Stop what it had before."""
        if pipeline in self._inputs:
            self._inputs[pipeline].stop()
        self._inputs[pipeline] = shared

    @property
    def shared_inputs(self) -> list[SharedInput]:
        """What each pipeline with dynamic shares has in this task at present."""
        return list(self._inputs.values())

    def give_back(self) -> None:
        """Let others have the batches that this task has been given and has not consumed. It must step no more."""
        for shared_input in self._inputs.values():
            shared_input.give_back()

    def rival(self) -> str | None:
        """Return another process that steps for this task; None if there is none."""
        sign = self.ledger.read([f"task/{self.task}"]).get(f"task/{self.task}")
        if sign is None or sign["process"] == self._process:
            return None
        return f"process {sign['pid']} on {sign['host']}"

    def has_left(self, task: Task, entries: dict[str, Any]) -> bool:
        """Whether the worker `task` takes no further steps, and reads the ledger no more, or is gone."""
        sign = entries.get(f"task/{task}")
        return sign is None or entries.get(f"away/{task}") == sign["process"] or self.signs.is_gone(task)

    def mark_ended(self) -> None:
        """Tell the other workers that the data of this one has ended."""
        self.ledger.write({f"ended/{self.task}": self.run_id})

    def stopped_workers(self, entries: dict[str, Any]) -> tuple[list[Task], list[Task]]:
        """Return the other workers that take no further steps: those whose data has ended, and those that are gone."""
        others = [task for task in self.layout.workers if task != self.task]
        words = ("ended", "done")
        ended = [task for task in others if self.run_id in (entries.get(f"{word}/{task}") for word in words)]
        gone = [task for task in others if task not in ended and self.signs.is_gone(task)]
        return ended, gone

    def finish(self) -> None:
        """Tell the others that this worker has finished the run; on the chief, that it has ended.

        Raises:
          ClusterError: the first parameter server does not answer.
        """
        entries: dict[str, Any] = {f"done/{self.task}": self.run_id}
        if self.task == self.layout.chief:
            entries["run"] = self._run("ended")

        def write() -> dict[str, Any]:
            self.ledger.write(entries)
            return entries

        # Nothing would tell them later, and the server may only stand still for a moment.
        self.await_entries(lambda _: True, lambda _: None, access=write)

    def await_last_save(self) -> None:
        """Wait, on a worker that has finished, until the chief has saved the last checkpoint and ended the run.

        Raises:
          ClusterError: the chief is gone, or begins again because a parameter server has lost the model: the restored
            model may lack the last steps of this worker.
        """
        chief = self.layout.chief

        def over(entries: dict[str, Any]) -> bool:
            if self.run_id is not None and "run" in entries and self._has_moved_on(entries):
                raise ClusterError(
                    f"{self.task} had finished, but a parameter server has restarted and lost the model. {chief} "
                    f"restores the last checkpoint, which may lack the last steps of {self.task}. Start {self.task} "
                    f"again: it continues behind the position in that checkpoint."
                )
            return "run" in entries and entries["run"]["state"] == "ended"

        def waiting_for(entries: dict[str, Any]) -> str:
            if self.signs.is_gone(chief):
                raise ClusterError(
                    f"{self.task} has finished, but {self.signs.described(chief)} has not saved the last checkpoint. "
                    f"Start {chief} again."
                )
            return f"{chief} to save the last checkpoint"

        self.await_entries(over, waiting_for, ["run"])

    # Every task.

    def await_entries(
        self,
        done: Callable[[dict[str, Any]], bool],
        waits_for: Callable[[dict[str, Any]], str | None],
        names: Sequence[str] | None = None,
        access: Callable[[], dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """As `wait_until`. Both functions look at the entries with `names`, or at those of `access`; None is all."""
        look = access or (self.read if names is None else lambda: self.ledger.read(names))

        def checked() -> dict[str, Any]:
            entries = look()
            self.check_layout()
            return entries

        return wait_until(done, checked, self.layout, self.clock, waits_for=waits_for, patience=self.patience)

    def patience(self) -> Patience:
        """Return how long this task waits for a parameter server that does not answer."""
        return self._servers.patience()


def model_lost(task: Task, reason: str) -> str:
    """Return the message of a chief that has no data left, when the model is lost before the workers finish."""
    return (
        f"{task} has no batch left and waits for the other workers, but {reason} and lost the model. Start {task} "
        f"again: it restores the last checkpoint, for which the other workers wait."
    )
