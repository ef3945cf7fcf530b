"""After kill -9 at random moments and restarts, a run is the same as without kills.

A normal run has two kills, one with the slow tests four; `make kill9` runs fifty. The test prints its seed.
STAGING_TF1_KILLS sets the number of kills, and STAGING_TF1_KILL_SEED the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer, Program
from kill9_child import RECORDS, SAVE_STEPS, make_source
from slow import with_slow

CHILD = Path(__file__).parents[1] / "support" / "kill9_child.py"
KILLS = int(os.environ.get("STAGING_TF1_KILLS", "4" if with_slow() else "2"))
# Normal runs use the same moments each time; a long run uses new ones.
_MOMENTS = random.SystemRandom().randrange(10**6) if "STAGING_TF1_KILLS" in os.environ else 48726
SEED = int(os.environ.get("STAGING_TF1_KILL_SEED", _MOMENTS))
# The most steps that a child may run: two epochs, so that kills fall within them and beyond their ends.
MOST_STEPS = 12
# Each child advances by two epochs at most, so this many epochs outlast the kills.
EPOCHS = 2 * KILLS + 2


@contextmanager
def child_in(folder: Path, fork_server: ForkServer) -> Iterator[Program]:
    """A child that trains in `folder` and ends with the block."""
    folder.mkdir(exist_ok=True)
    with (folder / "stderr").open("a") as stderr, fork_server.start(CHILD, folder, EPOCHS, stderr=stderr) as child:
        try:
            yield child
        finally:
            child.kill()


def kill_somewhere(folder: Path, choose: random.Random, fork_server: ForkServer) -> None:
    """Start a child, and kill it after a random number of steps plus a random delay."""
    with child_in(folder, fork_server) as child:
        assert child.stdout is not None
        for _ in range(choose.randint(1, MOST_STEPS)):
            assert child.stdout.readline(), complaint(folder)
        with suppress(subprocess.TimeoutExpired):
            # A step takes about a millisecond and a checkpoint about ten: the kill can hit either.
            child.wait(timeout=choose.uniform(0, 0.02))
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL, complaint(folder)


def run_to_the_end(child: Program, folder: Path) -> None:
    assert child.stdout is not None
    child.stdout.read()
    child.wait()
    assert child.returncode == 0, complaint(folder)


def complaint(folder: Path) -> str:
    return (folder / "stderr").read_text()[-2000:]


def read_log(folder: Path) -> list[Any]:
    path = folder / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def saved_position(folder: Path) -> int:
    """Return the position in the last checkpoint, where the numbers of steps and batches must agree."""
    path = tf.train.latest_checkpoint(str(folder))
    if path is None:
        return 0
    position, step = (tf.train.load_variable(path, name).item() for name in ("train/position", "global_step"))
    assert position == step, "as many batches as steps"
    return position


def counted_over_kills(folder: Path, choose: random.Random, fork_server: ForkServer) -> list[Any]:
    """Return the log without lost steps: each child's steps up to the checkpoint that the next child restores."""
    counted: list[Any] = []
    logged = position = 0
    for kill in range(KILLS + 1):
        if kill < KILLS:
            kill_somewhere(folder, choose, fork_server)
        else:
            with child_in(folder, fork_server) as child:
                run_to_the_end(child, folder)
        steps = read_log(folder)[logged:]
        logged += len(steps)
        began, position = position, saved_position(folder)
        assert [step for step, _, _ in steps] == list(range(began + 1, began + 1 + len(steps))), "it goes on there"
        # A kill can come just before a checkpoint.
        assert 0 <= began + len(steps) - position <= SAVE_STEPS
        counted += steps[: position - began]
    print(f"{KILLS} kills, {len(counted)} steps counted, {logged - len(counted)} more were done again")
    return counted


@pytest.mark.timeout(300 + 120 * KILLS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(fork_server: ForkServer, tmp_path: Path) -> None:
    print(f"STAGING_TF1_KILL_SEED={SEED} STAGING_TF1_KILLS={KILLS}")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with child_in(whole, fork_server) as undisturbed:
        counted = counted_over_kills(parts, random.Random(SEED), fork_server)
        run_to_the_end(undisturbed, whole)
    expected = read_log(whole)
    assert [ids for _, ids, _ in counted] == [ids for _, ids, _ in expected], "every record, in the same order"
    assert counted == expected, "and the losses, bit for bit"
    source = make_source(EPOCHS)
    assert [ids for _, ids, _ in expected] == [source.batch(k)["id"].tolist() for k in range(source.num_batches or 0)]
    assert sorted(n for _, ids, _ in expected for n in ids) == sorted([*range(RECORDS)] * EPOCHS)
