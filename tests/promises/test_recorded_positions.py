"""Checkpoints that an earlier commit wrote restore: each kind of pipeline gives the batches that came next then.

`recorded_positions.json` holds the variables of each checkpoint, and those batches. Run this file as a program to
record new kinds: those that are recorded stay as they are.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker
from recorded import train, variables_in, write_checkpoint

import staging_tf1 as staging
from staging_tf1.sources import ArraySource, GeneratorSource, StreamSource
from staging_tf1.spec import ArraySpec, flatten

RECORDED = Path(__file__).with_name("recorded_positions.json")
# Steps before the checkpoint, and steps after it whose batches are recorded.
CONSUMED, NEXT = 3, 4
TOWERS = ["/cpu:0", "/cpu:0"]


class BadBatchError(Exception):
    """Raised for some batches."""


class Counting(StreamSource):
    """Numbers whose state is the next one. Without a state it begins at 1000, which no test expects."""

    can_resume = keeps_state = True
    spec = ArraySpec((1,), np.dtype(np.int64))

    def __init__(self) -> None:
        self._begins = {0: 0}

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        first = self._begins.get(start, 1000)
        return (np.array([number]) for number in range(first, first + 50))

    def state(self, position: int) -> bytes:
        return b"%d" % position

    def restore(self, position: int, state: bytes) -> None:
        self._begins[position] = int(state)


def numbered(**options: Any) -> ArraySource:
    return ArraySource(np.arange(37), **{**dict(batch_size=3, shuffle=True, seed=5, epochs=4), **options})


def generator() -> GeneratorSource:
    return GeneratorSource(lambda: (np.array([number]) for number in range(50)), resume="skip")


def with_bad_batches(**options: Any) -> Any:
    def check(batch: Any) -> Any:
        if batch[0] % 3 == 2:
            raise BadBatchError
        return batch

    source = numbered(shuffle=False, seed=None, batch_size=4, transform=check)
    return staging.staged(source, ignored_exception_types=BadBatchError, **options)


KINDS = {
    "threads": lambda: staging.staged(numbered(), num_threads=3, capacity=5),
    "across epochs": lambda: staging.staged(numbered(across_epochs=True)),
    "a seed that was drawn": lambda: staging.staged(numbered(seed=None)),
    "lockstep": lambda: staging.staged(numbered(), lockstep=True),
    "towers": lambda: staging.staged(numbered(), devices=TOWERS),
    "towers in lockstep": lambda: staging.staged(numbered(), devices=TOWERS, lockstep=True),
    "towers that share a generator": lambda: staging.staged(generator(), devices=TOWERS),
    "bad batches": with_bad_batches,
    "bad batches of towers": lambda: with_bad_batches(devices=TOWERS),
    "dataset": lambda: staging.staged(tf.data.Dataset.range(40).batch(2)),
    "generator": lambda: staging.staged(generator()),
    "stream with a state": lambda: staging.staged(Counting()),
    "two pipelines": lambda: [staging.staged(numbered(seed=seed), name=f"with_{seed}") for seed in (5, 6)],
}
SHARES = ("static", "dynamic")


@contextmanager
def pipeline(kind: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """The session's options and the batches of a pipeline; of a cluster's only worker, if `kind` is a share."""
    if kind not in SHARES:
        yield {}, KINDS[kind]()
        return
    with only_worker() as cluster, cluster.device_scope():
        yield {"cluster": cluster}, staging.staged(numbered(), cluster=cluster, share=kind)


def run(kind: str, folder: Path, steps: int) -> list[list[list[int]]]:
    """Train some steps from the checkpoint in a folder, and save one. Return each step's batches."""
    with tf.Graph().as_default(), pipeline(kind) as (options, batches):
        values = train(batches, folder, steps, **options)
    return [[batch.ravel().tolist() for batch in flatten(of_step)] for of_step in values]


@pytest.mark.parametrize("kind", [*KINDS, *SHARES])
@pytest.mark.usefixtures("quick_graphs")
def test_a_recorded_checkpoint_restores(kind: str, tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text())[kind]
    write_checkpoint(tmp_path, recorded["checkpoint"])
    assert run(kind, tmp_path, NEXT) == recorded["next"]


def record() -> None:
    """Add the kinds that are not recorded yet."""
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for kind in {*KINDS, *SHARES} - recorded.keys():
        with tempfile.TemporaryDirectory() as folder:
            run(kind, Path(folder), CONSUMED)
            checkpoint = variables_in(Path(folder))
            recorded[kind] = {"checkpoint": checkpoint, "next": run(kind, Path(folder), NEXT)}
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
