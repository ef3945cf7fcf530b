"""What one soak case does, drawn from a seed."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

# The queue of a CustomRunner: of records in two orders, of whole batches, or filled by a generator a thread.
QUEUE_KINDS = ("shuffle", "fifo", "whole", "generators")
# One pipeline each; `classic` stages what the queue of a CustomRunner gives.
STAGED_KINDS = ("staged", "stream", "dataset", "classic", "staged-lockstep", "stream-lockstep", "dataset-lockstep")
STAGED_KINDS += ("classic-lockstep", "classic-shuffle")
TOWER_KINDS = ("towers", "towers-stream", "towers-dataset", "towers-classic")
TOWER_KINDS += ("towers-lockstep", "towers-stream-lockstep", "towers-dataset-lockstep")
# Kinds whose position a checkpoint holds.
RESUMING = tuple(kind for kind in STAGED_KINDS + TOWER_KINDS if "classic" not in kind)
PACES = ("none", "busy", "wait")
# How the arrays of a batch lie in memory.
LAYOUTS = ("native", "native", "big-endian", "strided", "reversed", "unaligned", "read-only")
# What a source raises at a bad record: an error of its own, or one that a session takes for a signal.
ERRORS = ("BrokenDiskError", "BrokenDiskError", "StopIteration", "OutOfRangeError", "AbortedError")
MONITORED = ("session", "step_fn", "hook")
WAYS = (*MONITORED, "callable", "plain")
# What may have happened to the files of the newest checkpoint, or to `checkpoint`, the state file, which names it.
DAMAGES = ("data cut", "data empty", "data deleted", "data bit", "index cut", "index empty", "index deleted")
DAMAGES += ("index bit", "all deleted", "state cut", "state empty", "state garbage", "state deleted")


@dataclass(frozen=True)
class Damage:
    """What happens to the newest checkpoint between two sessions."""

    # One of DAMAGES.
    kind: str
    # The number of the session that meets it.
    before: int
    # Where in the file: 0 is its beginning, 1 its end.
    place: float
    # Where the case goes on after the damage was found: "older", at the checkpoint before, or in an "empty" folder.
    cure: str


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
    layout: str
    step_pace: str
    # "none"; "raise" at a bad record; "ignored" where bad records are skipped; "misfit", a batch of another dtype.
    fault: str
    error: str
    bad: frozenset[int]
    max_ignored: int | None
    # The numbers of the steps that fail, and at which moment: "early", at the "token", or "late", with the batch.
    failing: frozenset[int]
    moment: str
    # Milliseconds that some steps are given.
    timeouts: dict[int, int]
    way: str
    # Threads that take steps at once; with several towers each runs one of them.
    consumers: int
    # "end" of the data, "break", "exception", "drain", "request_stop", before the step number `stop_at`; or
    # "interrupt", Ctrl-C while a source makes its batch number `stop_at`.
    stop: str
    stop_at: int
    # The step at which the session is lost and made anew, and whether it has been run by then; None for none.
    preempted_at: int | None
    preempted_after: bool
    # How often the graph is run.
    sessions: int
    # Whether each session goes on where the one before was stopped.
    resumes: bool
    damage: Damage | None = None

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
    def from_dataset(self) -> bool:
        """Whether it is TensorFlow that makes the batches."""
        return "dataset" in self.kind

    @property
    def by_records(self) -> bool:
        """Whether a queue of records cuts the batches anew."""
        return self.kind in ("shuffle", "fifo", "classic-shuffle")

    @property
    def shuffles(self) -> bool:
        return "shuffle" in self.kind

    @property
    def in_order(self) -> bool:
        """Whether the sequence of the source is promised."""
        if self.shuffles or self.kind == "generators" or (self.consumers > 1 and self.towers == 1):
            return False
        return not ((self.from_dataset or "classic" in self.kind) and self.threads > 1)

    @property
    def is_staged(self) -> bool:
        """Whether a failed step's batches are accounted for by name."""
        return self.kind not in QUEUE_KINDS


def draw(seed: int) -> Plan:
    """The plan of `seed`: the same on every machine."""
    choose = random.Random(seed)
    # Of their own, so that what is added here leaves the rest of the case as it was.
    more = random.Random(f"{seed}/more")
    kind = choose.choice(QUEUE_KINDS + STAGED_KINDS + TOWER_KINDS)
    lockstep, dataset = kind.endswith("lockstep"), "dataset" in kind
    towers = choose.randint(2, 3) if kind in TOWER_KINDS else 1
    records = choose.choice([choose.randint(3, 12), choose.randint(3, 300)])
    batch = max(choose.randint(1, 17), records // 60)
    way = choose.choice(WAYS[:-1] if lockstep else WAYS)
    fault = choose.choice(["raise", "ignored", "misfit"][: 2 if dataset else 3]) if choose.random() < 0.4 else "none"
    many = 0 if fault == "none" else choose.randint(1, 3) if fault == "ignored" else 1
    steps = range(2 * records // batch + 2)
    failing: frozenset[int] = frozenset()
    timeouts: dict[int, int] = {}
    if choose.random() < 0.4:
        failing = frozenset(n for n in steps if choose.random() < choose.choice([0.05, 0.5]))
    if choose.random() < 0.3 and way not in ("callable", "step_fn"):
        timeouts = {n: choose.randint(1, 8) for n in steps if choose.random() < 0.2}
    stop = choose.choice(["end"] * 3 + stops(way, dataset))
    whole = not (failing or timeouts) and fault in ("none", "ignored")
    resumes = kind in RESUMING and whole and way in MONITORED and choose.random() < 0.5
    threads = 1 if lockstep or (resumes and dataset) else choose.randint(1, 4)
    # Of a StopIteration in a generator Python makes a RuntimeError, which is not the one to be ignored.
    by_generator = "stream" in kind or kind == "generators"
    preempted = way in MONITORED and stop != "drain" and choose.random() < 0.25
    several = way == "plain" and choose.random() < 0.5
    plan = Plan(
        seed=seed,
        kind=kind,
        records=records,
        batch=batch,
        taken=choose.randint(1, batch),
        capacity=choose.randint(1, 6),
        threads=threads,
        towers=towers,
        inter_op=choose.choice([0, 0, 1, 2]),
        repeatable=choose.random() < 0.5,
        source_pace=choose.choice(PACES),
        layout=more.choice(LAYOUTS),
        step_pace=choose.choice(PACES),
        fault=fault,
        error=more.choice(ERRORS[:2] if fault == "ignored" and by_generator else ERRORS),
        bad=frozenset(choose.randrange(records) for _ in range(many)),
        max_ignored=choose.choice([None, 0, 1]) if fault == "ignored" and towers == 1 and not resumes else None,
        failing=failing,
        moment=choose.choice(["early", "token", "late"]),
        timeouts=timeouts,
        way=way,
        consumers=(towers if towers > 1 else choose.randint(2, 3)) if several else 1,
        stop="break" if resumes else stop,
        stop_at=choose.randint(0, max(1, records // batch)),
        preempted_at=choose.choice(steps[: len(steps) // 2]) if preempted else None,
        preempted_after=choose.random() < 0.5,
        sessions=choose.randint(2, 4) if resumes else choose.randint(1, 2),
        resumes=resumes,
    )
    return dataclasses.replace(plan, damage=draw_damage(plan))


def draw_damage(plan: Plan) -> Damage | None:
    """The damage of a plan, if it has one."""
    choose = random.Random(f"{plan.seed}/damage")
    if not plan.resumes or choose.random() < 0.2:
        return None
    return Damage(
        kind=choose.choice(DAMAGES),
        before=choose.randint(1, plan.sessions - 1),
        place=choose.random(),
        cure=choose.choice(["older", "empty"]),
    )


def stops(way: str, dataset: bool) -> list[str]:
    """How a loop of this way can be stopped before the end of the data."""
    # A callable goes by no hook; a plain session has no drain(); nobody can tell when a dataset makes a batch.
    only_some = {"request_stop": way != "callable", "drain": way != "plain", "interrupt": not dataset}
    return ["break", "exception", *(stop for stop, can in only_some.items() if can)]
