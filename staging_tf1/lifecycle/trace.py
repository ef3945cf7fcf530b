"""`Trace`: a timeline of sources, puts, gets and steps, as JSON for chrome://tracing and Perfetto.

The format is the "Trace Event Format" (Google, catapult project): complete events ("ph": "X") in microseconds.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1.feed.threads import PUTTING, WAITING_FOR_SOURCE, WAITING_IN_ORDER, ThreadState
from staging_tf1.graph.get_stats import GetFigures, GetStats
from staging_tf1.graph.sink import Sink

# Only the most recent events are kept: about 100 MB, an hour at 10 steps per second.
_MOST_EVENTS = 200_000
_NAMES = {WAITING_FOR_SOURCE: "source", WAITING_IN_ORDER: "wait for order", PUTTING: "put"}


@dataclass(frozen=True)
class _Event:
    name: str
    # The thread, area or queue. Each has its own line in the timeline.
    line: str
    began: float
    ended: float
    batch: int


class Trace:
    """Collects the events of successive sessions, and writes all of them whenever a session closes.

    Args:
      path: the file. It is created at once, so that an unwritable path is refused before the training.
    """

    def __init__(self, path: str) -> None:
        # Absolute, because the working directory may change before the session closes.
        self._path = os.path.abspath(path)
        self._events: deque[_Event] = deque(maxlen=_MOST_EVENTS)
        self._gets: _Gets | None = None
        self._lock = threading.Lock()
        with open(self._path, "w", encoding="utf-8"):
            pass

    def record(self, session: Any, sinks: Sequence[Sink], states: Iterable[ThreadState]) -> None:
        """Records the gets from `sinks` and what the threads of `states` do from now on."""
        for state in states:
            state.on_left = self._left
        self._gets = _Gets(session, sinks)

    def step_ended(self, began: float, ended: float) -> None:
        """Records a step and its gets.

        Args:
          began: when it began (perf_counter).
          ended: when it ended.
        """
        # One at a time, so that each step finds its own gets.
        with self._lock:
            if self._gets is not None:
                self._events.extend(self._gets.since(began))
        self._events.append(_Event("step", threading.current_thread().name, began, ended, -1))

    def write(self) -> None:
        """Writes all events so far."""
        events = list(self._events)
        numbers = {line: number for number, line in enumerate(dict.fromkeys(event.line for event in events), start=1)}
        names = [_named(line, number) for line, number in numbers.items()]
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": names + [_json(event, numbers[event.line]) for event in events]}, file)

    def _left(self, state: ThreadState, began: float, ended: float) -> None:
        if state.doing in _NAMES:
            self._events.append(_Event(_NAMES[state.doing], state.name, began, ended, state.batch))


class _Gets:
    """Finds out what a step took, from the counts in the graph."""

    def __init__(self, session: Any, sinks: Sequence[Sink]) -> None:
        self._names = [sink.name for sink in sinks]
        # TensorFlow refuses an empty list of fetches.
        self._values = session.make_callable([sink.stats.value for sink in sinks]) if sinks else list
        self._last = self._read()

    def since(self, began: float) -> list[_Event]:
        """Returns the gets since the last call, in a step that began at `began`: each lasts until its batch arrived."""
        before, self._last = self._last, self._read()
        return [
            _Event("get", f"get {name}", began, began + now.wait_secs - then.wait_secs, then.batches)
            for name, then, now in zip(self._names, before, self._last, strict=True)
            if now.batches > then.batches
        ]

    def _read(self) -> list[GetFigures]:
        return [GetStats.figures(sums) for sums in self._values()]


def _json(event: _Event, line: int) -> dict[str, Any]:
    made: dict[str, Any] = {"name": event.name, "cat": "staging", "ph": "X", "pid": 1, "tid": line}
    made |= {"ts": event.began * 1e6, "dur": (event.ended - event.began) * 1e6}
    return made if event.batch < 0 else made | {"args": {"batch": event.batch}}


def _named(line: str, number: int) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": line}}
