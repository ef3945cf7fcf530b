"""A stream with a state resumes from the state in the checkpoint: consumed records are not read again.

`test_resume.py` resumes such streams in every way to feed them.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from resuming import Counting, resumed_steps

import staging_tf1 as staging
from staging_tf1.errors import StagingError
from staging_tf1.sources import GrainSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

CHILD = Path(__file__).parents[1] / "support" / "grain_child.py"
# The most records that the child's pipelines read to make one batch: a few batches in each worker.
AHEAD = 60


def _steps(source: Any, folder: Path, steps: int, **options: Any) -> list[int]:
    """Return the numbers of this many steps."""
    return [batch[0] for step in resumed_steps(folder, source, steps, name="train", **options) for batch in step]


def test_the_state_in_the_checkpoint_is_that_of_what_was_consumed(tmp_path: Path) -> None:
    source = Counting()
    _steps(source, tmp_path, 7, capacity=6)
    assert len(source.read) > 7
    held = tf.train.load_checkpoint(str(tmp_path))
    names = sorted(name for name in held.get_variable_to_shape_map() if name.startswith("train/"))
    assert names == ["train/fingerprint", "train/position", "train/state"]
    assert (held.get_tensor("train/position").tolist(), held.get_tensor("train/state")) == ([7], b"7:next=7")


@pytest.mark.parametrize("resume", ["ignore", "restart"])
def test_the_other_modes_use_no_state(tmp_path: Path, resume: str) -> None:
    _steps(Counting(), tmp_path, 7)
    source = Counting()
    assert _steps(source, tmp_path, 2, resume=resume) == ([7, 8] if resume == "ignore" else [0, 1])
    assert source.read[0] == 0


def test_a_state_of_another_position_is_not_used(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        batch = staging.staged(Counting(), name="train")
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        state = next(each for each in tf.global_variables() if each.op.name == "train/state")
        spoil = state.assign("3:next=3")
        with staging.StagingSession(checkpoint_dir=str(tmp_path), save_summaries_steps=0) as sess:
            for _ in range(5):
                sess.run([batch, step])
            sess.run(spoil)
    source = Counting()
    assert _steps(source, tmp_path, 1) == [5] and source.read[0] == 0


def _pipeline(stages: int = 1) -> Any:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.range(100).seed(2).shuffle().to_iter_dataset()
    return (dataset if stages == 1 else dataset.batch(4).map(np.ravel).filter(lambda x: True)).batch(4)


def test_another_pipeline_does_not_take_the_state_back() -> None:
    source = GrainSource(_pipeline())
    list(source.batches())
    other: Any = GrainSource(_pipeline(stages=3))
    other.restore(2, b'json:{"no": "such key"}')
    message = (
        r"^GrainSource: the pipeline rejected its state after 2 batches: \w+: .+\. Build the pipeline as it was when "
        r"the state was saved; or use staged\(\.\.\., resume='ignore'\) to read and discard 2 batches instead, or "
        r"resume='restart'\.$"
    )
    with pytest.raises(StagingError, match=message):
        next(other.batches(2))


def _killed_after(folder: Path, kind: str, steps: int, fork_server: ForkServer) -> None:
    """Run the child for this many steps, and kill it and its workers."""
    with open(folder / "stderr", "a", encoding="utf-8") as stderr:
        with fork_server.start(CHILD, folder, kind, stderr=stderr, start_new_session=True) as child:
            try:
                assert child.stdout is not None
                for _ in range(steps):
                    assert child.stdout.readline(), (folder / "stderr").read_text(encoding="utf-8")[-3000:]
            finally:
                os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.timeout(1500)  # Grain's workers are new processes
@pytest.mark.slow  # test_resume.py resumes streams with a state, test_kill9.py kills runs
@pytest.mark.parametrize("kind", ["iter", "workers"])
def test_killed_and_started_again(fork_server: ForkServer, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("grain")
    _killed_after(tmp_path, kind, 33, fork_server)
    restart = len((tmp_path / "steps").read_text().splitlines())
    read_before = len((tmp_path / "reads").read_text().split())
    _killed_after(tmp_path, kind, 20, fork_server)
    steps = [json.loads(line) for line in (tmp_path / "steps").read_text().splitlines()]
    before, after = dict(steps[:restart]), dict(steps[restart:])
    goes_on = min(after) - 1
    assert goes_on >= 30 and all(before[number] == after[number] for number in set(before) & set(after))
    consumed = [record for number in range(1, goes_on + 1) for record in before[number]]
    followed = [record for number in sorted(after) for record in after[number]]
    assert len({*consumed, *followed}) == len(consumed) + len(followed)
    # Each process reads the first batch to learn dtypes and shapes, and its workers read ahead of it.
    read = {int(record) for record in (tmp_path / "reads").read_text().split()[read_before:]}
    assert set(followed) <= read and not read & set(consumed[AHEAD:])
