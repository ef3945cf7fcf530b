"""A cluster whose tasks are killed at random moments, and restarted at once, trains on each record exactly once.

Except for the steps in flight. The position counts a batch at the beginning of its step, so a step that a kill
interrupts may be counted and missing from the model: at most one batch for each kill of a worker. The kill of a
parameter server takes everybody back to the last checkpoint, which is a snapshot, and loses nothing.

A run of all tests has four kills, and the default run two, of a server and of a worker; `make cluster-soak` runs fifty.
The test prints its seed. STAGING_TF1_CLUSTER_KILLS sets the number of kills, and STAGING_TF1_CLUSTER_KILL_SEED the
seed.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from cluster_models import miscounted
from clusters import TestCluster, long_form, until
from slow import with_slow

KILLS = int(os.environ.get("STAGING_TF1_CLUSTER_KILLS", "4" if with_slow() else "2"))
# Normal runs use the same moments each time; a long run uses new ones.
_MOMENTS = random.SystemRandom().randrange(10**6) if "STAGING_TF1_CLUSTER_KILLS" in os.environ else 7
SEED = int(os.environ.get("STAGING_TF1_CLUSTER_KILL_SEED", _MOMENTS))
WORKERS, SERVERS, BATCH, SAVE_STEPS = 2, 2, 3, 5
# Steps that each worker may make from one kill to the next, and after the last one.
STEPS, LAST_STEPS = 8, 10


class Killed:
    """A training run whose tasks are killed."""

    def __init__(self, cluster: TestCluster, folder: Path, share: str) -> None:
        self.cluster = cluster
        self.batches = STEPS * KILLS + LAST_STEPS
        self.options: dict[str, Any] = {
            "num_records": WORKERS * BATCH * self.batches,
            "batch_size": BATCH,
            "checkpoint_dir": str(folder / "model"),
            "save_steps": SAVE_STEPS,
            "staged_options": {"share": share},
        }
        # With a permit for each step, no share ends before the last kill.
        self.gates = cluster.begin(*[0] * WORKERS, **self.options)
        self.workers = [f"worker{index}" for index in range(WORKERS)]
        self.servers = [f"ps{index}" for index in range(SERVERS)]
        self.kills: list[str] = []
        self._next: list[str] = []

    def let_step(self, count: int) -> None:
        for gate in self.gates:
            gate.release(count)

    def steps_of(self, task: str) -> int:
        """How many steps the task has made; all of them, for a parameter server."""
        return sum(len(self.cluster.notes(each, "got")) for each in ([task] if task in self.workers else self.workers))

    def check(self) -> None:
        """Fail if a task has raised."""
        for task in self.workers:
            assert self.cluster.notes(task, "raised") == [], self.cluster.logs()

    def kill(self, choose: random.Random) -> None:
        """Kill a random task at a random moment, and start it again."""
        if not self._next:
            # Each task once, in a random order; a worker and a server alternate.
            workers, servers = choose.sample(self.workers, WORKERS), choose.sample(self.servers, SERVERS)
            self._next = [task for pair in zip(workers, servers, strict=True) for task in pair]
        victim = self._next.pop()
        steps, delay = choose.randint(1, STEPS - 2), choose.uniform(0, 0.02)
        # In a third of the cases the kill comes while the others may still recover from the kill before.
        soon = choose.random() < 1 / 3 and bool(self.kills)
        if soon:
            steps, delay = 0, choose.uniform(0, 2)
        print(f"kill {len(self.kills) + 1}: {victim} after {steps} steps and {delay:.3f} s", flush=True)
        before = self.steps_of(victim)
        self.let_step(STEPS)

        def has_stepped() -> bool:
            self.check()
            return self.steps_of(victim) >= before + steps

        until(has_stepped, f"{victim} has made {steps} steps\n")
        # The kill can hit a step, a checkpoint, a start or nothing.
        with suppress(subprocess.TimeoutExpired):
            self.cluster.processes[victim].wait(delay)
        self.cluster.kill(victim)
        self.kills.append(victim)
        self.cluster.start_again(victim)

    def finish(self) -> None:
        """Let everybody train to the end."""
        # With dynamic shares, one worker may get all that is left. A kill may have taken the permit of a step.
        self.let_step(WORKERS * self.batches + KILLS)
        self.cluster.join()


# Each restart takes a second or two, and ten times as long on a busy machine.
@pytest.mark.timeout(300 + 60 * KILLS)
@pytest.mark.parametrize("share", ["static", pytest.param("dynamic", marks=long_form)])
def test_a_cluster_trains_on_each_record_once_but_for_the_steps_in_flight(
    make_cluster: Callable[..., TestCluster], tmp_path: Path, share: str
) -> None:
    print(f"STAGING_TF1_CLUSTER_KILL_SEED={SEED} STAGING_TF1_CLUSTER_KILLS={KILLS} ({share} shares)")
    cluster, choose = make_cluster(WORKERS, SERVERS), random.Random(SEED)
    run = Killed(cluster, tmp_path, share)
    for _ in range(KILLS):
        run.kill(choose)
    run.finish()
    run.check()
    shares = WORKERS if share == "static" else 1
    wrong = cluster.wrong_batches(run.options["checkpoint_dir"], run.options["num_records"], BATCH, shares)
    print(f"{KILLS} kills, {sum(map(run.steps_of, run.workers))} steps, not seen exactly once: {wrong}")
    servers = sum(task in run.servers for task in run.kills)
    assert len(wrong) <= KILLS - servers and {count for _, _, count in wrong} <= {0}
    if share == "static":
        for worker, number, _ in wrong:
            # The worker has begun again behind it.
            began = cluster.notes(f"worker{worker}", "began")
            assert number + 1 in began, (worker, number, began)
    assert_nobody_listens(cluster)


MODELS = [("static", False), ("dynamic", True), ("dynamic", False), ("static", True)]
# The weights take a while to write.
MEGABYTES = 120 if "STAGING_TF1_CLUSTER_KILLS" in os.environ else 40
SAVING_KILLS = KILLS if "STAGING_TF1_CLUSTER_KILLS" in os.environ else 1
COUNTERS, COUNTED_STEPS = 3, 60


# The first two have each kind of share and of variable.
@pytest.mark.timeout(300 + 60 * KILLS)
@pytest.mark.parametrize(
    ("share", "use_resource"), [*MODELS[:2], *(pytest.param(*each, marks=long_form) for each in MODELS[2:])]
)
@pytest.mark.slow_cases(r"(?!(static-False)$).*")
def test_nothing_is_lost_or_twice_when_the_server_is_killed_while_it_saves(
    make_cluster: Callable[..., TestCluster], tmp_path: Path, share: str, use_resource: bool
) -> None:
    cluster, choose = make_cluster(COUNTERS), random.Random(SEED)
    folder = tmp_path / "model"
    records = BATCH * COUNTERS * COUNTED_STEPS * (SAVING_KILLS + 1)

    def files() -> set[str]:
        # Written under another name first.
        return {path.name for path in folder.rglob("*model*")} if folder.exists() else set()

    # With a permit for each step, the data does not end before the last kill.
    gates = cluster.begin(
        *[0] * COUNTERS,
        num_records=records,
        checkpoint_dir=str(folder),
        save_steps=COUNTED_STEPS,
        staged_options={"share": share, "capacity": 4},
        use_resource=use_resource,
        counts=MEGABYTES,
        keep=2,
    )
    until(lambda: any(name.endswith(".index") for name in files()), "the first checkpoint is written")
    for number in range(SAVING_KILLS):
        known, delay = files(), choose.uniform(0, 0.3)
        print(f"kill {number + 1}: {delay:.3f} s after a save has begun", flush=True)
        for gate in gates:
            gate.release(COUNTED_STEPS)
        until(lambda known=known: bool(files() - known), "a checkpoint is being written")
        with suppress(subprocess.TimeoutExpired):
            cluster.processes["ps0"].wait(delay)
        cluster.kill("ps0")
        cluster.start_again("ps0")
    for gate in gates:
        gate.release(2 * records // BATCH)
    cluster.join(secs=120)
    latest = tf.train.latest_checkpoint(str(folder))
    lost, twice, _ = miscounted(latest, records, BATCH)
    counts = tf.train.load_variable(latest, "z_counts")
    print(
        f"{share} shares, {'resource' if use_resource else 'ref'} variables: {SAVING_KILLS} kills, "
        f"lost {int((counts == 0).sum())}, twice {int((counts - 1)[counts > 1].sum())} of {counts.size} records"
    )
    assert (lost, twice, set(counts.tolist())) == (0, 0, {1})


def assert_nobody_listens(cluster: TestCluster) -> None:
    """Fail if a server of the cluster is still there."""
    for address in [address for addresses in cluster.jobs.values() for address in addresses]:
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            assert probe.connect_ex((host, int(port))), f"somebody listens at {address}"
