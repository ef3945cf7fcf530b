"""The loops that a program may write, on small steps (W1 with bytes, or W2), in turn within one process.

    python benchmarks/loops.py [--workload W1] [--rounds N] [--json out.json]

Each loop trains the same model, with Adam, on the same shuffled bytes in memory, which the step casts and scales; only
`map_fn` does that ahead of the step. Those written by hand gather their batches in a feed thread:

- `by hand`: a FIFOQueue, a staging area and the put in the step, by `make_callable` and by `run` of a
  MonitoredTrainingSession;
- `feed_dict`: `Session.run` as it is, and as `staging-tf1 run` makes it;
- `tf.data`: in TensorFlow ops, with `prefetch`; `tensorpack` if it is installed;
- `ours`: `staged()` in a StagingSession, by `make_callable`, with `map_fn`, and by `run`.

The figures are milliseconds per step, and the quotient by the loop by hand of the same kind, round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step, finish, flags, in_turn, ratio, turns
from peers import SYSTEMS
from systems import Case, queue_and_area
from workloads import W1, W2, NotApplicable

import staging_tf1 as staging
from staging_tf1.feed.compiled_runs import compile_runs

BY_HAND, BY_HAND_RUN = "by hand, callable", "by hand, MonitoredTrainingSession.run"


def scaled(batch: dict[str, Any]) -> dict[str, Any]:
    """Return what the model gets of a batch of bytes."""
    return batch | {"image": tf.cast(batch["image"], tf.float32) * np.float32(1 / 255)}


def in_bytes(kind: type[W1 | W2]) -> type[W1 | W2]:
    """Return a workload whose batches are bytes, which the step scales."""

    class InBytes(kind):  # type: ignore[misc, valid-type]
        scales, draws = False, False
        change = staticmethod(lambda batch, rng, empty: batch)
        spec = MappingProxyType({**kind.spec, "image": (kind.spec["image"][0], np.uint8)})

        def model(self, batch: dict[str, Any]) -> Any:
            return super().model(scaled(batch))

    return InBytes


@contextmanager
def by_hand_run(case: Case) -> Iterator[Step]:
    """The queue and the area by hand, in a MonitoredTrainingSession."""
    tf.train.get_or_create_global_step()
    fetches, put, feeds = queue_and_area(case)
    with tf.train.MonitoredTrainingSession(log_step_count_steps=None) as session:
        raw = session.run_step_fn(lambda step_context: step_context.session)
        with feeds(raw):
            raw.run(put)
            yield lambda: session.run([fetches, put])


@contextmanager
def feed_dict(case: Case, compiled: bool) -> Iterator[Step]:
    """A plain session, and one as under `staging-tf1 run`."""
    placeholders = case.placeholders()
    fetches, batches = case.model(placeholders), case.batches()
    with case.session() as session:
        if compiled:
            compile_runs(session)

        def step() -> None:
            batch = next(batches)
            session.run(fetches, {placeholders[name]: batch[name] for name in placeholders})

        yield step


@contextmanager
def ours(case: Case, *, maps: bool = False, runs: bool = False) -> Iterator[Step]:
    """`staged()` in a StagingSession."""
    source = case.workload.rows(case.data, case.seed)
    batch = staging.staged(source, map_fn=scaled) if maps else staging.staged(source)
    fetches = super(type(case.workload), case.workload).model(batch) if maps else case.model(batch)
    with staging.StagingSession() as session:
        yield (lambda: session.run(fetches)) if runs else session.make_callable(fetches)


# Each loop, and the one by hand to which it is compared.
LOOPS: dict[str, tuple[Callable[[Case], AbstractContextManager[Step]], str]] = {
    BY_HAND: (SYSTEMS["hand_area"].feed, BY_HAND),
    "tf.data, callable": (SYSTEMS["tf_data"].feed, BY_HAND),
    "tensorpack": (SYSTEMS["tensorpack"].feed, BY_HAND),
    "ours, callable": (ours, BY_HAND),
    "ours with map_fn, callable": (lambda case: ours(case, maps=True), BY_HAND),
    BY_HAND_RUN: (by_hand_run, BY_HAND_RUN),
    "ours, StagingSession.run": (lambda case: ours(case, runs=True), BY_HAND_RUN),
    "feed_dict, Session.run": (lambda case: feed_dict(case, compiled=False), "feed_dict, Session.run"),
    "feed_dict under staging-tf1 run": (lambda case: feed_dict(case, compiled=True), "feed_dict, Session.run"),
}


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    words = flags(__doc__, rounds=9)
    words.add_argument("--workload", choices=["W1", "W2"], default="W1")
    options = words.parse_args(argv)
    workload = in_bytes({"W1": W1, "W2": W2}[options.workload])()
    steps: dict[str, Step] = {}
    with ExitStack() as stack:
        for name, (feed, _) in LOOPS.items():
            data = workload.open(workload.records[options.quick])
            try:
                with tf.Graph().as_default():
                    steps[name] = stack.enter_context(feed(Case(workload, data, workload.model)))
            except NotApplicable as reason:
                print(f"{name}: {reason}")
        found = in_turn(steps, **turns(options, 0.5))
    for name in steps:
        middle, least, most = ratio(found, name, LOOPS[name][1])
        times = sorted(found[name])
        print(f"{name:40} {times[len(times) // 2] / 1e3:7.3f} ms  {middle:.2f} ({least:.2f} to {most:.2f})")
    finish(options, found)


if __name__ == "__main__":
    main()
