"""A pause of the cluster: all workers stand still between two steps, while the chief copies or restores the model.

The chief writes the entry `pause` and rings a bell in each worker, which waits for it in a thread of its own. That
thread closes the worker's gate and writes `still/WORKER` when no run is under way. The pause is over when its entry is
gone. A worker removes the entry itself if the chief is gone, and the chief's copies then fail. A worker that does not
answer loses its fence.
"""

from __future__ import annotations

import functools
import json
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.background import Background, Stop
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.connection import Connection
from staging_tf1.cluster.gate import Gate
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.ledger import Ledger, find_op, text_of
from staging_tf1.cluster.reach import Knock, is_listening
from staging_tf1.cluster.signs import Signs, beat_secs

# The entry of the ledger.
PAUSE = "pause"
# A worker whose process can run answers within milliseconds that it closes its gate, even in the middle of a step.
_ANSWER_SECS = 5.0
# How often the chief looks for answers: at first, and when they take long.
_POLL_SECS, _LONG_POLL_SECS = 0.002, 0.05
# How many workers it looks at together. The server pays for each.
_LOOKED_AT = 20
# How often a worker that stands still looks whether that is over: at least, and for each worker of the cluster, because
# the server pays for all of them. And from when on it looks whether the chief is gone.
_LOOK_SECS, _LOOK_SECS_EACH, _CHIEF_SECS = 0.25, 0.02, 1.0
# How long a worker waits after an error.
_AGAIN_SECS = 0.5
# A worker that did not take part in a pause looks this often for its end.
_JOIN_SECS = 0.02
# How long the chief waits for a worker whose step did not end in the pause before. Its step may wait for one of the
# workers that stand still, as with a queue of the program's own.
_STUCK_SECS = 0.5
# When the chief looks whether anything listens where a worker should be that has not answered. And for how long it then
# waits if that machine has answered before: it does so within milliseconds, also for a process that is stopped.
_PROBE_AFTER_SECS, _VANISHED_SECS = 0.05, 0.4


class Bells:
    """Wakes the workers that wait for a pause, or for its end. On the first parameter server. Thread-safe.

    Without them each worker would have to read the ledger many times a second.
    """

    def __init__(self, layout: Layout) -> None:
        server = layout.servers[0]
        # A run that waits keeps its connection.
        self._waits, self._rings = (Connection(f"grpc://{layout.address(server)}", server.device) for _ in range(2))
        with self._waits.building():
            self._look = find_op(PAUSE)
            with tf.control_dependencies([_dequeue(f"ask/{layout.task}")]):
                self._asked = find_op(PAUSE)
            with tf.control_dependencies([_dequeue("resume")]):
                self._resumed = find_op(PAUSE)
        with self._rings.building():
            asks = layout.workers if layout.is_chief else [layout.task]
            self._ask = {task: _enqueue(f"ask/{task}", 1) for task in asks}
            self._resume = resume_op(layout.num_workers)

    def await_pause(self, secs: float) -> bytes:
        """Wait until it is rung, for at most `secs` seconds. Return the text of the pause; b"" if there is none."""
        return self._find(self._asked, secs)

    def await_end(self, secs: float) -> bytes:
        """As `await_pause`, until a pause ends."""
        return self._find(self._resumed, secs)

    def look(self) -> bytes:
        """As `await_pause`, without waiting."""
        return bytes(self._waits.run(self._look))

    def _find(self, rung: Any, secs: float) -> bytes:
        text = self._waits.wait(rung, secs)
        return self.look() if text is None else bytes(text)

    def ask(self, tasks: Sequence[Task]) -> None:
        """Wake workers that wait for a pause."""
        self._rings.run([self._ask[task] for task in tasks])

    def resume(self) -> None:
        """Wake workers that wait for the end of a pause."""
        self._rings.run(self._resume)

    def close(self) -> None:
        """Disconnect. Call it when nobody waits."""
        self._waits.close()
        self._rings.close()


def resume_op(workers: int) -> Any:
    """Return an op that wakes so many workers at the end of a pause, on the current device."""
    return _enqueue("resume", workers)


def _queue(name: str) -> Any:
    return tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shapes=[[]], shared_name=f"staging_tf1_{name}")


def _dequeue(name: str) -> Any:
    return tf.raw_ops.QueueDequeueV2(handle=_queue(name), component_types=[tf.int32])[0]


def _enqueue(name: str, number: int) -> Any:
    return tf.raw_ops.QueueEnqueueManyV2(handle=_queue(name), components=[tf.zeros([number], tf.int32)])


class Pauses:
    """The pauses of a worker's cluster. The chief makes them, and the others stand still in them.

    Attributes:
      gate: where the runs of this task's sessions wait in a pause.
    """

    def __init__(self, layout: Layout, ledger: Ledger, signs: Signs, clock: Clock, silence_secs: float) -> None:
        self._layout, self._ledger, self._signs, self._clock = layout, ledger, signs, clock
        self._silence_secs = silence_secs
        self.gate = Gate(clock)
        self._thread: Background | None = None
        # Workers whose step did not end in the last pause.
        self._stuck: set[Task] = set()
        # One for each worker that has begun.
        self._met: dict[Task, Knock] = {}
        # One pause at a time.
        self._lock = threading.RLock()

    @functools.cached_property
    def bells(self) -> Bells:
        """What wakes workers for a pause, and at its end."""
        return Bells(self._layout)

    # Every worker.

    @property
    def is_watching(self) -> bool:
        """Whether this task answers when the chief asks for a pause."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread that answers when the chief asks for a pause."""
        stopping = Stop()
        work = functools.partial(self._watch, stopping, self.bells)
        self._thread = Background(f"cluster:pause:{self._layout.task}", work, stopping)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and open the gate. May be called again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.stopping.set()
        assert self._layout.task is not None
        with suppress(tf.errors.OpError):
            self.bells.ask([self._layout.task])
            if self.gate.is_closed:
                self.bells.resume()
        thread.stop()
        self.bells.close()

    def _watch(self, stopping: Stop, bells: Bells) -> Iterator[float]:
        # Only in case a bell was not heard.
        secs = 2 * beat_secs(self._layout.num_workers)
        while True:
            try:
                text = bells.await_pause(secs)
                if text and not stopping.is_set:
                    self._stand_still(text, stopping, bells)
                yield 0.0
            except (tf.errors.OpError, RuntimeError) as error:
                logging.vlog(1, "%s: no news of a pause: %s", self._layout.task, error)
                yield _AGAIN_SECS

    def _stand_still(self, text: bytes, stopping: Stop, bells: Bells) -> None:
        pause, gate, still = json.loads(text)[1], self.gate, _still(self._layout.task)
        secs = max(_LOOK_SECS, _LOOK_SECS_EACH * self._layout.num_workers)
        if pause["by"] == str(self._layout.task):
            # The chief closes its own gate.
            return
        gate.close()
        try:
            at_rest = gate.is_at_rest()
            self._ledger.write({still: [pause["id"], at_rest]})
            while not stopping.is_set:
                if not at_rest and gate.await_rest(_LOOK_SECS):
                    at_rest = True
                    self._ledger.write({still: [pause["id"], True]})
                if (bells.await_end(secs) if at_rest else bells.look()) != text:
                    return
                if gate.closed_secs > _CHIEF_SECS and self._is_left():
                    # Before the gate is opened, so that copies that are made later are not used.
                    self._ledger.remove([PAUSE])
                    logging.warning("%s goes on: the chief, for which it stood still, is gone.", self._layout.task)
                    return
        finally:
            gate.open()

    def _is_left(self) -> bool:
        chief = self._layout.chief
        return self._signs.is_gone(chief) or not is_listening(self._layout, chief)

    def await_none(self) -> None:
        """Wait until the cluster does not stand still. A chief that makes it so from now on asks this worker, too."""
        end = self._clock.now() + self._silence_secs
        while PAUSE in self._ledger.read([PAUSE]) and self._clock.now() < end:
            time.sleep(_JOIN_SECS)

    # The chief.

    def meet(self) -> None:
        """Connect to the workers that have begun since the last call: a firewall may prevent that for good."""
        for task in self._layout.workers:
            if task not in self._met and task != self._layout.task and self._signs.knows(task):
                self._met[task] = Knock(self._layout, task)

    @contextmanager
    def pause(
        self,
        secs: float | None = None,
        settled: Callable[[float], bool] = lambda secs: True,
        only: Collection[Task] | None = None,
    ) -> Iterator[str]:
        """Return a context in which all workers stand still, but for this thread. Its value is the pause's text.

        Args:
          secs: how long to wait for a step to end; None is `silence_secs`.
          settled: called with the seconds since they stand still, until nothing is under way on the parameter servers
            either.
          only: the workers that may be in a step; None is all that are there.

        Raises:
          tf.errors.OpError: the first parameter server does not answer.
        """
        with self._lock:
            pause = {"id": uuid.uuid4().hex, "by": str(self._layout.task)}
            self.gate.close(threading.get_ident())
            try:
                self._ledger.write({PAUSE: pause})
                # Afterwards: see `await_none`.
                asked = self._asked(self._layout.workers if only is None else only)
                self.bells.ask(list(asked))
                self._await_rest(asked, pause["id"], self._silence_secs if secs is None else secs)
                began = self._clock.now()
                while not settled(self._clock.now() - began):
                    time.sleep(_POLL_SECS)
                yield text_of(PAUSE, pause)
            finally:
                self.gate.open()
                # With the server, the pause is gone, too.
                with suppress(tf.errors.OpError):
                    self._ledger.remove([PAUSE])
                    self.bells.resume()

    def _asked(self, workers: Collection[Task]) -> dict[Task, Any]:
        """Return those of `workers` that are there, without this one, with their fences.

        Those that are known to be gone lose their fences, and are not waited for.
        """
        entries = self._ledger.read()
        # One may have returned since this task last read the signs.
        self._signs.note(entries)
        run = entries.get("run", {"id": ""})["id"]
        asked = {}
        for task in workers:
            sign, fence = entries.get(f"task/{task}"), entries.get(f"fence/{task}")
            away = sign is not None and entries.get(f"away/{task}") == sign["process"]
            if task != self._layout.task and (sign or fence) and not away and entries.get(f"done/{task}") != run:
                asked[task] = fence
        gone = [task for task in asked if self._signs.is_gone(task)]
        self._ledger.remove([f"fence/{task}" for task in gone if asked.pop(task) is not None])
        return asked

    def _await_rest(self, asked: Mapping[Task, Any], pause: str, secs: float) -> None:
        """Wait until the workers in `asked` stand still, and give up those that do not. `asked` has their fences."""
        layout, began, waiting = self._layout, self._clock.now(), list(asked)
        given_up: set[Task] = set()
        knocks: dict[Task, Knock] = {}
        if not self.gate.await_rest(_STUCK_SECS if layout.chief in self._stuck else secs):
            self._give_up(layout.chief)
        while waiting:
            passed = self._clock.now() - began
            # All must stand still, so the order does not matter.
            looked = waiting[:_LOOKED_AT]
            answers = self._ledger.read([_still(task) for task in looked])
            still = {task for task in looked if answers.get(_still(task)) == [pause, True]}
            self._stuck -= still
            for task in (task for task in looked if task not in still):
                answered = answers.get(_still(task), [""])[0] == pause
                known = task in self._stuck and (answered or asked[task] is None)
                patience = _STUCK_SECS if known else secs if answered else min(secs, _ANSWER_SECS)
                if passed > _PROBE_AFTER_SECS and task not in knocks:
                    knocks[task] = Knock(layout, task)
                refused = task in knocks and knocks[task].is_refused
                if passed > patience or refused or (passed > _VANISHED_SECS and self._has_vanished(knocks[task], task)):
                    given_up.add(task)
                    self._give_up(task, None if answered else asked[task], refused=refused)
            waiting = [task for task in waiting if task not in still | given_up]
            if waiting and not still:
                time.sleep(_POLL_SECS if passed < _LONG_POLL_SECS else _LONG_POLL_SECS)

    def _has_vanished(self, knock: Knock, task: Task) -> bool:
        """Whether the machine of a worker does not answer as it did before."""
        return not (knock.is_answered or knock.is_refused) and task in self._met and self._met[task].is_answered

    def _give_up(self, task: Task, fence: Any = None, *, refused: bool = False) -> None:
        """Do without a worker. If it has not answered, its steps must fail: it may go on at any moment."""
        name = f"fence/{task}"
        if fence is not None and self._ledger.read([name]) == {name: fence}:
            self._ledger.remove([name])
        if refused or task in self._stuck:
            return
        self._stuck.add(task)
        logging.warning(
            "%s does not stand still for the checkpoint. If it is in a step, the checkpoint may count the batch of "
            "that step without its gradient. Its step should end within silence_secs, and wait for no other worker.",
            self._signs.described(task),
        )


def _still(task: Task | None) -> str:
    return f"still/{task}"
