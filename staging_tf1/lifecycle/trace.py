"""A timeline of sources, puts, gets and steps, in the JSON that chrome://tracing and Perfetto read.

The format is described in "Trace Event Format" (Google, catapult project): complete events ("ph": "X") in microseconds.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1.feed.thread_state import PUTTING, WAITING_FOR_SOURCE, WAITING_FOR_TURN, ThreadState
from staging_tf1.graph.meter import Meter
from staging_tf1.graph.sink import Sink
from staging_tf1.lifecycle.clock import StepClock

# The last so many events are kept: some 100 MB, and an hour of 10 steps a second.
_MOST_EVENTS = 200_000
_NAMES = {WAITING_FOR_SOURCE: "source", WAITING_FOR_TURN: "wait for turn", PUTTING: "put"}


@dataclass(frozen=True)
class _Event:
    name: str
    # What it happens in: a thread, or an area or queue. Each has a line of its own in the timeline.
    line: str
    began: float
    ended: float
    batch: int


class Trace:
    """Collects events of one session after another, and writes them all each time that one closes.

    Args:
      path: the file, which is made at once, so that a path that cannot be written is known before the training.
    """

    def __init__(self, path: str) -> None:
        # Absolute, because it is written again when the session closes.
        self._path = os.path.abspath(path)
        self._events: deque[_Event] = deque(maxlen=_MOST_EVENTS)
        self._lock = threading.Lock()
        with open(self._path, "w", encoding="utf-8"):
            pass

    def record(self, session: Any, clock: StepClock, sinks: Iterable[Sink], states: Iterable[ThreadState]) -> None:
        """Records the runs of `session`, its gets from `sinks` and what the threads of `states` do."""
        states = list(states)
        for state in states:
            state.on_left = self._left
        # In lockstep the loop's own thread reads.
        feeders = {state.thread for state in states} - {threading.current_thread()}
        gets = _Gets(session, list(sinks))
        taken = gets.read()

        def on_run(began: float, ended: float) -> None:
            nonlocal taken
            if threading.current_thread() in feeders:
                # It closes what it has filled, which is no step.
                return
            # One run at a time, so that each finds what it has taken itself.
            with self._lock:
                before, taken = taken, gets.read()
                self._events.extend(gets.between(before, taken, began))
            self._events.append(_Event("step", threading.current_thread().name, began, ended, -1))

        clock.on_run = on_run
        clock.on_close.append(self.write)

    def write(self) -> None:
        """Writes what has been collected so far."""
        events = list(self._events)
        numbers = {line: number for number, line in enumerate(dict.fromkeys(event.line for event in events), start=1)}
        names = [_named(line, number) for line, number in numbers.items()]
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": names + [_json(event, numbers[event.line]) for event in events]}, file)

    def _left(self, state: ThreadState, began: float, ended: float) -> None:
        if state.doing in _NAMES:
            self._events.append(_Event(_NAMES[state.doing], state.name, began, ended, state.batch))


class _Gets:
    """Reads from the meters what a run took: they count in the graph, where Python sees nothing."""

    def __init__(self, session: Any, sinks: Sequence[Sink]) -> None:
        self._names = [sink.name for sink in sinks]
        # Without a pipeline there is nothing to fetch, which TensorFlow refuses.
        self._values = session.make_callable([sink.meter.value for sink in sinks]) if sinks else list

    def read(self) -> list[Any]:
        return [Meter.reading(sums) for sums in self._values()]

    def between(self, before: list[Any], after: list[Any], began: float) -> list[_Event]:
        """The gets of a run that began at `began`: they start with it, and end when they have their batch."""
        return [
            _Event("get", f"get {name}", began, began + now.wait_secs - then.wait_secs, then.batches)
            for name, then, now in zip(self._names, before, after, strict=True)
            if now.batches > then.batches
        ]


def _json(event: _Event, line: int) -> dict[str, Any]:
    made: dict[str, Any] = {"name": event.name, "cat": "staging", "ph": "X", "pid": 1, "tid": line}
    made |= {"ts": event.began * 1e6, "dur": (event.ended - event.began) * 1e6}
    return made if event.batch < 0 else made | {"args": {"batch": event.batch}}


def _named(line: str, number: int) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": line}}
