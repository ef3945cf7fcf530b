"""Summarizes a timeline as text: the time by part, who waited for whom, and the slowest steps.

Opens no session and needs no TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The parts of a thread's time, in the order of a batch's life. A `get` is a part of its step.
_PARTS = ("make", "source", "wait for share", "wait for order", "put", "step", "get", "run")
_NO_VERDICT = "bottleneck unknown: the session ended before its figures were taken"


class TraceFormatError(ValueError):
    """The file is not a timeline of this package."""


@dataclass(frozen=True)
class Part:
    """What one thread spent its time on."""

    thread: str
    part: str
    count: int
    secs: float
    # Of the time from the thread's first event to its last, from 0 to 1.
    share: float
    longest_ms: float


@dataclass(frozen=True)
class Wait:
    """How long the steps waited for a pipeline, and its feed threads for the steps."""

    pipeline: str
    batches: int
    # None with deterministic ops.
    steps_waited_secs: float | None
    # Of the time of the steps that take from it, from 0 to 1.
    steps_waited_share: float | None
    feeders_waited_secs: float
    source_secs: float
    # That of `stats()` at the end of the session, which also knows who had the GIL.
    verdict: str


@dataclass(frozen=True)
class Slow:
    """One of the slowest steps."""

    step: int
    batch: int | dict[str, int]
    # When it began, from the start of the timeline.
    at_secs: float
    ms: float
    # None with deterministic ops.
    waited_ms: float | None


@dataclass(frozen=True)
class Report:
    """What a timeline says."""

    secs: float
    steps: int
    not_delivered: int
    not_taken: int
    events_not_kept: int
    parts: list[Part]
    waits: list[Wait]
    slowest: list[Slow]
    # With AUTOTUNE, the numbers of feed threads in turn, by "feed threads of PIPELINE".
    threads: dict[str, list[int]]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        return asdict(self)


def read_trace(path: str) -> dict[str, Any]:
    """Read a file that `trace_file=` has written.

    Raises:
      OSError: it cannot be read.
      TraceFormatError: it is not such a file; the message says why.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if not text:
        raise TraceFormatError("is empty: a timeline is written when its session is closed")
    try:
        trace = json.loads(text)
    except ValueError as error:
        raise TraceFormatError(f"is not JSON: {error}") from None
    if (
        not isinstance(trace, dict)
        or not isinstance(trace.get("otherData"), dict)
        or "legend" not in trace["otherData"]
    ):
        raise TraceFormatError("is not a timeline of staging_tf1; write one with trace_file=")
    return trace


def report_on(trace: dict[str, Any], slowest: int = 5) -> Report:
    """Summarize a timeline, with its `slowest` steps."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    rows = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    ends = [event["ts"] + event["dur"] for event in events]
    steps = [event for event in events if event["name"] == "step"]
    return Report(
        secs=(max(ends) - min(event["ts"] for event in events)) / 1e6 if events else 0.0,
        steps=len(steps),
        not_delivered=sum(event["name"] == "source (not delivered)" for event in events),
        not_taken=sum(event["name"] == "put (not taken)" for event in events),
        events_not_kept=int(trace["otherData"].get("events not kept", 0)),
        parts=[part for tid, row in rows.items() for part in _parts(row, tid, events)],
        waits=_waits([*events, *_untimed(trace)], steps, trace["otherData"].get("verdicts", {})),
        slowest=_slowest([*events, *_untimed(trace)], steps, slowest),
        threads=_numbers(trace),
    )


def _numbers(trace: dict[str, Any]) -> dict[str, list[int]]:
    """The numbers that AUTOTUNE has chosen, by the name of their counter."""
    numbers: dict[str, list[int]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            numbers.setdefault(event["name"], []).append(event["args"]["threads"])
    return numbers


def _untimed(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The gets whose length is unknown."""
    return [{**event, "dur": None} for event in trace["traceEvents"] if event["ph"] == "i"]


def _sum(lengths: Iterable[float | None]) -> float | None:
    """The sum; None if one of them is unknown."""
    known = list(lengths)
    return None if None in known else sum(length or 0.0 for length in known)


def _kind(event: dict[str, Any]) -> str:
    return str(event["name"]).partition(" (")[0]


def _parts(row: str, tid: int, events: Sequence[dict[str, Any]]) -> list[Part]:
    events = [event for event in events if event["tid"] == tid]
    if not events:
        return []
    span = max(event["ts"] + event["dur"] for event in events) - min(event["ts"] for event in events)
    parts = []
    for part in _PARTS:
        lengths = [event["dur"] for event in events if _kind(event) == part]
        if lengths:
            share = sum(lengths) / span if span else 0.0
            parts.append(Part(row, part, len(lengths), sum(lengths) / 1e6, share, max(lengths) / 1e3))
    return parts


def _waits(
    events: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]], verdicts: Mapping[str, str]
) -> list[Wait]:
    steps_us = sum(step["dur"] for step in steps)
    names = dict.fromkeys(event["args"]["pipeline"] for event in events if "pipeline" in event["args"])
    waits = []
    for name in names:
        of_pipeline = [event for event in events if event["args"].get("pipeline") == name]
        gets = [event for event in of_pipeline if event["name"] == "get"]
        waited = _sum(event["dur"] for event in gets)
        share = None if waited is None else waited / steps_us if steps_us else 0.0
        source = sum(event["dur"] for event in of_pipeline if _kind(event) == "source")
        # In lockstep the puts are parts of the steps.
        stepping = {step["tid"] for step in steps}
        feeders = sum(event["dur"] for event in of_pipeline if _kind(event) == "put" and event["tid"] not in stepping)
        waits.append(
            Wait(
                pipeline=name,
                batches=len(gets),
                steps_waited_secs=None if waited is None else waited / 1e6,
                steps_waited_share=share,
                feeders_waited_secs=feeders / 1e6,
                source_secs=source / 1e6,
                verdict=verdicts.get(name, _NO_VERDICT),
            )
        )
    return waits


def _slowest(events: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]], most: int) -> list[Slow]:
    gets = [event for event in events if event["name"] == "get"]
    chosen = sorted(steps, key=lambda step: -step["dur"])[:most]
    return [
        Slow(
            step=step["args"]["step"],
            batch=step["args"]["batch"],
            at_secs=step["ts"] / 1e6,
            ms=step["dur"] / 1e3,
            waited_ms=_longest_ms(get["dur"] for get in gets if _is_within(get, step)),
        )
        for step in chosen
    ]


def _longest_ms(lengths: Iterable[float | None]) -> float | None:
    known = list(lengths)
    return None if None in known else max((length or 0.0 for length in known), default=0.0) / 1e3


def _is_within(event: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(event["tid"] == other["tid"] and other["ts"] <= event["ts"] < other["ts"] + other["dur"])


def as_text(report: Report) -> str:
    """Format a report as tables."""
    lines = [f"{report.steps} steps in {report.secs:.2f} s"]
    lines += [
        "",
        "time by part",
        *_table(("thread", "part", "count", "secs", "share", "longest ms"), _part_rows(report)),
    ]
    lines += ["", "who waited for whom"]
    for wait in report.waits:
        waited = f"steps took {wait.batches} batches; feed threads waited"
        if wait.steps_waited_secs is not None and wait.steps_waited_share is not None:
            share = f"({_percent(wait.steps_waited_share)} of their time)"
            waited = f"steps waited {wait.steps_waited_secs:.2f} s {share} for {wait.batches} batches; feed threads"
        lines.append(
            f"  {wait.pipeline}: {waited} {wait.feeders_waited_secs:.2f} s for room, "
            f"{wait.source_secs:.2f} s in the source"
        )
        lines.append(f"    {wait.verdict}")
    lines += [f"  {name} (AUTOTUNE): {', '.join(map(str, numbers))}" for name, numbers in report.threads.items()]
    if report.slowest:
        slow = [
            (str(step.step), _batch(step.batch), f"{step.at_secs:.3f}", f"{step.ms:.2f}", _ms(step.waited_ms))
            for step in report.slowest
        ]
        lines += ["", "slowest steps", *_table(("step", "batch", "at secs", "ms", "waited ms"), slow)]
    rest = [
        f"{number} {what}"
        for number, what in (
            (report.not_delivered, "batches were read and not delivered"),
            (report.not_taken, "batches were put and not taken"),
            (report.events_not_kept, "earlier events were not kept"),
        )
        if number
    ]
    lines += ["", *rest] if rest else []
    return "\n".join(lines)


def _part_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (part.thread, part.part, str(part.count), f"{part.secs:.3f}", _percent(part.share), f"{part.longest_ms:.2f}")
        for part in report.parts
    ]


def _ms(length: float | None) -> str:
    return "-" if length is None else f"{length:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _batch(batch: int | dict[str, int]) -> str:
    if isinstance(batch, int):
        return str(batch)
    return ", ".join(f"{name}: {number}" for name, number in batch.items())


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of text to the left, of numbers to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    texts = {"thread", "part", "batch"}
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if head in texts else cell.rjust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
