"""What one soak case does, drawn from a seed."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

# One pipeline each; `classic` stages what the queue of a CustomRunner gives.
KINDS = ("staged", "lockstep", "stream", "stream-lockstep", "dataset", "classic", "shuffle", "fifo", "whole")
TOWER_KINDS = ("towers", "towers-lockstep", "towers-stream")
# Kinds whose position a checkpoint holds.
RESUMING = ("staged", "lockstep", "towers", "towers-lockstep")
PACES = ("none", "busy", "wait")
WAYS = ("session", "callable", "hook", "plain")


@dataclass(frozen=True)
class Plan:
    """One graph, the sessions that run it, and what goes wrong on the way."""

    seed: int
    kind: str
    records: int
    batch: int
    # Records that a step takes from a queue of records.
    taken: int
    capacity: int
    threads: int
    towers: int
    inter_op: int
    # Whether a shuffle queue's order can be repeated: feeder and taker in turn.
    repeatable: bool
    source_pace: str
    step_pace: str
    # "none"; "raise" at a bad record; "ignored" where bad records are skipped; "misfit", a batch of another dtype.
    fault: str
    bad: frozenset[int]
    max_ignored: int | None
    # The numbers of the steps that fail, and at which moment: "early", at the "token", or "late", with the batch.
    failing: frozenset[int]
    moment: str
    # Milliseconds that some steps are given.
    timeouts: dict[int, int]
    way: str
    # "end" of the data, "break", "exception", "drain", "request_stop"; before the step number `stop_at`.
    stop: str
    stop_at: int
    # How often the graph is run.
    sessions: int
    # Whether each session goes on where the one before was stopped.
    resumes: bool

    def __str__(self) -> str:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return "Plan(" + ", ".join(f"{name}={value!r}" for name, value in fields) + ")"

    @property
    def lockstep(self) -> bool:
        return self.kind.endswith("lockstep")

    @property
    def streams(self) -> bool:
        """Whether the source is read from front to back."""
        return "stream" in self.kind

    @property
    def in_order(self) -> bool:
        """Whether the sequence of the source is promised."""
        return self.kind != "shuffle" and not (self.kind in ("dataset", "classic") and self.threads > 1)

    @property
    def is_staged(self) -> bool:
        """Whether a failed step's batches are accounted for by name."""
        return self.kind not in ("shuffle", "fifo", "whole")


def draw(seed: int) -> Plan:
    """The plan of `seed`: the same on every machine."""
    choose = random.Random(seed)
    kind = choose.choice(KINDS + TOWER_KINDS)
    records = choose.choice([choose.randint(3, 12), choose.randint(3, 300)])
    batch = max(choose.randint(1, 17), records // 60)
    faulty = choose.random() < 0.4 and kind != "dataset"
    fault = choose.choice(["raise", "ignored", "misfit"]) if faulty else "none"
    lockstep = kind.endswith("lockstep")
    way = choose.choice(WAYS[:-1] if lockstep else WAYS)
    # A callable goes by no hook; a plain session has no drain().
    only_some = ["request_stop"] * (way != "callable") + ["drain"] * (way != "plain")
    stops = ["end"] * 3 + ["break", "exception"] + only_some
    stop = choose.choice(stops)
    steps = range(2 * records // batch + 2)
    failing: frozenset[int] = frozenset()
    timeouts: dict[int, int] = {}
    if choose.random() < 0.4:
        failing = frozenset(n for n in steps if choose.random() < choose.choice([0.05, 0.5]))
    if choose.random() < 0.3 and way != "callable":
        timeouts = {n: choose.randint(1, 8) for n in steps if choose.random() < 0.2}
    many = choose.randint(1, 3) if fault == "ignored" else 1
    bad = frozenset(choose.randrange(records) for _ in range(many)) if fault != "none" else frozenset()
    whole = not (failing or timeouts or faulty)
    resumes = kind in RESUMING and whole and way in ("session", "hook") and choose.random() < 0.5
    return Plan(
        seed=seed,
        kind=kind,
        records=records,
        batch=batch,
        taken=choose.randint(1, batch),
        capacity=choose.randint(1, 6),
        threads=1 if lockstep else choose.randint(1, 4),
        towers=choose.randint(2, 3) if kind in TOWER_KINDS else 1,
        inter_op=choose.choice([0, 0, 1, 2]),
        repeatable=choose.random() < 0.5,
        source_pace=choose.choice(PACES),
        step_pace=choose.choice(PACES),
        fault=fault,
        bad=bad,
        max_ignored=choose.choice([None, 0, 1]) if fault == "ignored" and kind not in TOWER_KINDS else None,
        failing=failing,
        moment=choose.choice(["early", "token", "late"]),
        timeouts=timeouts,
        way=way,
        stop="break" if resumes else stop,
        stop_at=choose.randint(0, max(1, records // batch)),
        sessions=choose.randint(2, 4) if resumes else choose.randint(1, 2),
        resumes=resumes,
    )
