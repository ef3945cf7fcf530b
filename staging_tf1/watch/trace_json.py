"""Formats a timeline as JSON for chrome://tracing and https://ui.perfetto.dev, with a legend.

The format is the "Trace Event Format" (Google, catapult project): complete events ("X") in microseconds, flows from
event to event ("s", "t", "f"), marks without a length ("i"), and metadata ("M").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

# Colours of chrome://tracing: batch n has colour n modulo their number. Perfetto chooses its own by the event's name.
_COLOURS = (
    *("thread_state_running", "rail_response", "rail_animation", "thread_state_iowait"),
    *("rail_idle", "yellow", "olive", "thread_state_runnable"),
)
LEGEND = {
    "rows": "One row for each thread, feed:PIPELINE:NUMBER, and for each worker process, worker:PIPELINE:NUMBER.",
    "make": "A worker process makes the batch. Meanwhile a thread is in `source`, waiting for it.",
    "source": "A thread reads a batch from its source.",
    "feed threads": "With num_threads=AUTOTUNE, how many feed threads work; the others are parked.",
    "wait for order": "It has the batch, and waits for the threads that put the earlier batches.",
    "wait for share": "It waits for batches that the chief hands out.",
    "put": "It puts the batch into the area or queue, and waits for a free place there.",
    "step": "A run of yours that takes a batch. Within it, `get` lasts until the batch has arrived.",
    "get": "A long get means that the step waits for its input. With deterministic ops it is a mark without a length.",
    "run": "A run of yours that takes no batch, such as an evaluation.",
    "not delivered": "Read, but not put: skipped, or the session ended.",
    "not taken": "Put, but no step took it before the session ended.",
    "verdicts": "What stats() said of each pipeline at the end: what the loop waited for, and what would help.",
    "flows": "The arrows follow a batch: make, source, put, get, step.",
    "args": "batch: its number in its source, -1 for none. bytes: its size as it was put, 0 if the graph computes it.",
    "colours": "In chrome://tracing, each batch has one colour.",
}
_NO_BATCH = -1
# The kind of an event that tells how many feed threads work from then on.
THREADS = "feed threads"


# By identity: two sessions feed the same sink.
@dataclass(eq=False)
class Feed:
    """One area or queue in one session."""

    name: str
    # Whether an element is a batch. The gets of a queue of records mix the records of several batches.
    holds_batches: bool
    # Counts the puts that have ended.
    puts: Iterator[int] = field(repr=False)


class Event(NamedTuple):
    """Something that a thread did. Times are those of perf_counter."""

    kind: str
    # The name of the thread.
    row: str
    began: float
    ended: float
    # None for a step.
    feed: Feed | None = None
    # The number of the producer among those of the feed's pipeline.
    producer: int = 0
    batch: int = _NO_BATCH
    nbytes: int = 0
    # The place of a put or get among those of the feed.
    element: int = _NO_BATCH
    # The number of a step, of the step of a get, and of feed threads.
    number: int = _NO_BATCH
    # What a step raised.
    error: str = ""
    # False for a get whose end is unknown; `ended` is `began` then.
    is_timed: bool = True


class Life(NamedTuple):
    """The events of one batch."""

    make: Event | None
    source: Event | None
    put: Event | None
    get: Event | None
    step: Event | None


def dump(events: Sequence[Event], began: float, dropped: int, verdicts: Mapping[str, str], file: TextIO) -> None:
    """Write all events.

    Args:
      events: in any order.
      began: the time that is 0 in the timeline.
      dropped: how many earlier events were not kept.
      verdicts: what `stats()` says of each pipeline.
      file: where to write.
    """
    lives = _lives(events)
    of_event = {id(event): number for number, life in enumerate(lives) for event in life[:4] if event is not None}
    named = dict.fromkeys(event.row for event in events if event.kind != THREADS)
    rows = {row: number for number, row in enumerate(named, start=1)}
    writer = _Writer(rows, began, lives, of_event)
    trace = [*_names(rows), *(writer.event(event) for event in events), *writer.flows()]
    counts = {
        "batches": sum(life.get is not None for life in lives),
        "events not kept": dropped,
        "verdicts": dict(verdicts),
    }
    json.dump({"traceEvents": trace, "displayTimeUnit": "ms", "otherData": {**counts, "legend": LEGEND}}, file)


def _lives(events: Sequence[Event]) -> list[Life]:
    """Find out which events belong to the same batch."""
    by_kind: dict[str, dict[Any, Event]] = {kind: {} for kind in ("make", "source", "put", "get", "step")}
    for event in events:
        if event.kind in ("put", "get"):
            by_kind[event.kind][event.feed, event.element] = event
        elif event.kind in ("make", "source"):
            by_kind[event.kind][event.feed, event.producer, event.batch] = event
        elif event.kind == "step":
            by_kind["step"][event.number] = event
    makes, sources, puts, gets, steps = by_kind.values()
    lives = []
    for key, put in puts.items():
        assert put.feed is not None
        get = gets.get(key) if put.feed.holds_batches else None
        step = None if get is None else steps.get(get.number)
        batch = put.feed, put.producer, put.batch
        lives.append(Life(makes.pop(batch, None), sources.pop(batch, None), put, get, step))
    delivered = {id(life.get) for life in lives}
    lives += [Life(None, None, None, get, steps.get(get.number)) for get in gets.values() if id(get) not in delivered]
    lives += [Life(makes.pop(batch, None), source, None, None, None) for batch, source in sources.items()]
    return lives + [Life(make, None, None, None, None) for make in makes.values()]


class _Writer:
    def __init__(self, rows: dict[str, int], began: float, lives: list[Life], of_event: dict[int, int]) -> None:
        self._rows, self._began, self._lives, self._of_event = rows, began, lives, of_event
        self._of_step: dict[int, list[Life]] = {}
        for life in lives:
            if life.get is not None:
                self._of_step.setdefault(life.get.number, []).append(life)

    def event(self, event: Event) -> dict[str, Any]:
        """Format one event."""
        if event.kind == THREADS:
            assert event.feed is not None
            name, args = f"{THREADS} of {event.feed.name}", {"threads": event.number}
            return {"name": name, "cat": "staging", "ph": "C", "pid": 1, "ts": self._us(event.began), "args": args}
        began, ended = _span(event, self._life(event))
        ts = self._us(began)
        name, args = self._step(event) if event.kind == "step" else self._of_batch(event)
        entry = {"name": name, "cat": "staging", "pid": 1, "tid": self._rows[event.row], "ts": ts, "args": args}
        entry |= {"ph": "X", "dur": round(self._us(ended) - ts, 3)} if event.is_timed else {"ph": "i", "s": "t"}
        if isinstance(args["batch"], int) and args["batch"] >= 0:
            entry["cname"] = _COLOURS[args["batch"] % len(_COLOURS)]
        return entry

    def flows(self) -> Iterator[dict[str, Any]]:
        """Yield the arrows from event to event. Each begins and ends within its event, and none goes back in time."""
        for number, life in enumerate(self._lives, start=1):
            points = _points(life)
            for position, (event, at) in enumerate(points):
                phase = "s" if position == 0 else "f" if position == len(points) - 1 else "t"
                entry = {"name": "batch", "cat": "batch", "ph": phase, "id": number, "pid": 1}
                entry |= {"tid": self._rows[event.row], "ts": self._us(at)}
                yield entry if phase == "s" else {**entry, "bp": "e"}

    def _us(self, at: float) -> float:
        return round((at - self._began) * 1e6, 3)

    def _life(self, event: Event) -> Life | None:
        number = self._of_event.get(id(event))
        return None if number is None else self._lives[number]

    def _of_batch(self, event: Event) -> tuple[str, dict[str, Any]]:
        assert event.feed is not None
        life = self._life(event)
        args: dict[str, Any] = {"pipeline": event.feed.name, **_batch_of(event, life)}
        name = event.kind
        if name == "source" and (life is None or life.put is None):
            return "source (not delivered)", args
        if name == "put" and event.feed.holds_batches and (life is None or life.get is None):
            return "put (not taken)", args
        return name, args

    def _step(self, event: Event) -> tuple[str, dict[str, Any]]:
        lives = self._of_step.get(event.number, ())
        batches = [(life.get.feed, _batch_of(life.get, life)) for life in lives if life.get is not None]
        args: dict[str, Any] = {
            "step": event.number,
            "batch": _NO_BATCH,
            "bytes": sum(batch["bytes"] for _, batch in batches),
        }
        if len(batches) == 1:
            args["batch"] = batches[0][1]["batch"]
        elif batches:
            args["batch"] = {feed.name: batch["batch"] for feed, batch in batches if feed is not None}
        if event.error:
            args["error"] = event.error
        return "step" if batches else "run", args


def _batch_of(event: Event, life: Life | None) -> dict[str, int]:
    """The batch number and bytes of an event; a get has those of its put."""
    told = life.put if event.kind in ("make", "get") and life is not None and life.put is not None else event
    if told is None or told.batch < 0:
        return {"batch": event.element, "bytes": 0}
    return {"batch": told.batch, "bytes": told.nbytes}


def _span(event: Event, life: Life | None) -> tuple[float, float]:
    if event.kind != "get" or life is None or life.put is None or life.step is None:
        return event.began, event.ended
    # The wait is measured in the graph, which begins a little after the step. A get ends after its put has begun.
    return event.began, min(life.step.ended, max(event.ended, life.put.began))


def _points(life: Life) -> list[tuple[Event, float]]:
    """The events of a batch in order, with a moment in each, none before the one before it."""
    points: list[tuple[Event, float]] = []
    if life.make is not None:
        points.append((life.make, (life.make.began + life.make.ended) / 2))
    if life.source is not None:
        began = max([life.source.began, *(at for _, at in points)])
        points.append((life.source, (began + life.source.ended) / 2))
    if life.put is not None:
        ended = life.put.ended if life.get is None else min(life.put.ended, _span(life.get, life)[1])
        points.append((life.put, (life.put.began + max(life.put.began, ended)) / 2))
    # Steps of several threads at the same time may have each other's batch, even one that was put after them.
    if life.get is not None and life.step is not None and (life.put is None or life.put.began < life.step.ended):
        began, ended = _span(life.get, life)
        at = (max([began, *(at for _, at in points)]) + ended) / 2
        points += [(life.get, at), (life.step, (ended + life.step.ended) / 2)]
    return points if len(points) > 1 else []


def _names(rows: dict[str, int]) -> Iterator[dict[str, Any]]:
    yield {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "staging_tf1"}}
    for row, number in rows.items():
        yield {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": row}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": number, "args": {"sort_index": number}}
