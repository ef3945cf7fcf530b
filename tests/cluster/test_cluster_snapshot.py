"""A cluster's checkpoint is exact: it holds the gradients of those batches, and of no others, that its position counts.

The model itself counts how often it has seen each record, so each checkpoint says what it has lost, or has twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from cluster_models import miscounted
from clusters import TestCluster, long_form

RECORDS, BATCH = 900, 3


def count(cluster: TestCluster, share: str = "static", **options: Any) -> str:
    """Train to the end, and return the folder of the checkpoints."""
    folder = str(cluster.folder / "model")
    for index in range(len(cluster.jobs["ps"])):
        cluster.start_ps(index)
    for index in range(len(cluster.jobs["worker"])):
        given = {"num_records": RECORDS, "checkpoint_dir": folder, "save_steps": 60, "counts": 20, **options}
        cluster.start_worker(index, staged_options={"share": share, "capacity": 4}, **given)
    cluster.join()
    return folder


def miscounts(folder: str) -> dict[str, tuple[int, int, bool]]:
    """The records that each checkpoint has lost, and has twice, and whether it is of several moments."""
    checkpoints = sorted(Path(folder).glob("*.index"), key=lambda path: int(path.stem.split("-")[1]))
    assert len(checkpoints) > 2
    return {path.stem: miscounted(str(path.with_suffix("")), RECORDS, BATCH) for path in checkpoints}


@pytest.mark.parametrize(
    ("share", "use_resource"),
    [
        ("static", False),
        pytest.param("dynamic", False, marks=long_form),
        pytest.param("static", True, marks=long_form),
        ("dynamic", True),
    ],
)
@pytest.mark.slow_cases(r"(?!(static-False)$).*")
def test_every_checkpoint_is_exact(make_cluster: Callable[..., TestCluster], share: str, use_resource: bool) -> None:
    folder = count(make_cluster(3), share, use_resource=use_resource)
    found = miscounts(folder)
    print(found)
    assert set(found.values()) == {(0, 0, False)}
    # An ordinary file: the variables, and nothing else.
    saved = {name for name, _ in tf.train.list_variables(folder)}
    assert saved == {"global_step", "train/position", "train/fingerprint", "u_weights", "z_counts"}


@long_form
@pytest.mark.parametrize(
    "options",
    [{"by_hand": True}, {"sharded": True}, {"options": {"save_copies": False}}],
    ids=str,
)
def test_every_other_way_to_save_is_exact(make_cluster: Callable[..., TestCluster], options: dict[str, Any]) -> None:
    assert set(miscounts(count(make_cluster(ps=2), **options)).values()) == {(0, 0, False)}


@pytest.mark.slow  # test_every_checkpoint_is_exact has other workers
def test_a_checkpoint_in_step_is_between_two_rounds(two: TestCluster) -> None:
    folder = count(two, counts=4, sync=True, save_steps=50)
    for path in Path(folder).glob("*.index"):
        lost, twice, torn = miscounted(str(path.with_suffix("")), RECORDS, BATCH)
        # SyncReplicasOptimizer itself drops the gradients of a worker whose tokens are a round too old.
        assert (lost % BATCH, twice, torn) == (0, 0, False)
        saved = tf.train.load_checkpoint(str(path.with_suffix("")))
        # The step that one worker is ahead does not count while its round is not complete.
        first, second = saved.get_tensor("train/position").tolist()
        assert abs(first - second) <= 1
        if saved.get_tensor("global_step") == 0:
            assert lost == 0
