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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf
from cluster_models import miscounted
from clusters import TestCluster, long_form, until
from slow import with_slow

KILLS = int(os.environ.get("STAGING_TF1_CLUSTER_KILLS", "4" if with_slow() else "2"))
# Normal runs use the same moments each time; a long run uses new ones.
_MOMENTS = random.SystemRandom().randrange(10**6) if "STAGING_TF1_CLUSTER_KILLS" in os.environ else 7
SEED = int(os.environ.get("STAGING_TF1_CLUSTER_KILL_SEED", _MOMENTS))
WORKERS, SERVERS, BATCH, SAVE_STEPS = ("worker0", "worker1"), ("ps0", "ps1"), 3, 5
# Steps that each worker may make from one kill to the next, and after the last one.
STEPS, LAST_STEPS = 8, 10


def victims(choose: random.Random) -> Iterator[str]:
    """Each task once, in a random order, again and again. A server and a worker alternate."""
    while True:
        pairs = zip(choose.sample(WORKERS, len(WORKERS)), choose.sample(SERVERS, len(SERVERS)), strict=True)
        yield from reversed([task for pair in pairs for task in pair])


# Each restart takes a second or two, and ten times as long on a busy machine.
@pytest.mark.timeout(300 + 60 * KILLS)
@pytest.mark.parametrize("share", ["static", pytest.param("dynamic", marks=long_form)])
def test_a_cluster_trains_on_each_record_once_but_for_the_steps_in_flight(
    make_cluster: Callable[..., TestCluster], model: str, share: str
) -> None:
    print(f"STAGING_TF1_CLUSTER_KILL_SEED={SEED} STAGING_TF1_CLUSTER_KILLS={KILLS} ({share} shares)")
    cluster, choose = make_cluster(len(WORKERS), len(SERVERS)), random.Random(SEED)
    batches, next_victim, kills = STEPS * KILLS + LAST_STEPS, victims(choose), list[str]()
    records = len(WORKERS) * BATCH * batches
    options = {"num_records": records, "batch_size": BATCH, "checkpoint_dir": model, "save_steps": SAVE_STEPS}
    # With a permit for each step, no share ends before the last kill.
    gates = cluster.begin(0, 0, staged_options={"share": share}, **options)

    def let_step(count: int) -> None:
        for gate in gates:
            gate.release(count)

    def steps_of(tasks: Sequence[str]) -> int:
        """How many steps they have made. Fails if a task has raised."""
        assert [cluster.notes(task, "raised") for task in WORKERS] == [[], []], cluster.logs()
        return sum(len(cluster.notes(task, "got")) for task in tasks)

    while len(kills) < KILLS:
        victim = next(next_victim)
        watched = [victim] if victim in WORKERS else WORKERS
        steps, delay = choose.randint(1, STEPS - 2), choose.uniform(0, 0.02)
        # In a third of the cases the kill comes while the others may still recover from the kill before.
        if choose.random() < 1 / 3 and kills:
            steps, delay = 0, choose.uniform(0, 2)
        kills.append(victim)
        print(f"kill {len(kills)}: {victim} after {steps} steps and {delay:.3f} s", flush=True)
        before = steps_of(watched)
        let_step(STEPS)
        until(lambda least=before + steps, watched=watched: steps_of(watched) >= least, f"{steps} steps of {watched}\n")
        # The kill can hit a step, a checkpoint, a start or nothing.
        with suppress(subprocess.TimeoutExpired):
            cluster.processes[victim].wait(delay)
        cluster.kill(victim)
        cluster.start_again(victim)
    # With dynamic shares, one worker may get all that is left. A kill may have taken the permit of a step.
    let_step(len(WORKERS) * batches + KILLS)
    cluster.join()
    wrong = cluster.wrong_batches(model, records, BATCH, len(WORKERS) if share == "static" else 1)
    print(f"{KILLS} kills, {steps_of(WORKERS)} steps, not seen exactly once: {wrong}")
    assert len(wrong) <= sum(task in WORKERS for task in kills) and {count for _, _, count in wrong} <= {0}
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
@pytest.mark.slow
@pytest.mark.matrix_cases("(?!(static-False)$).*")
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
