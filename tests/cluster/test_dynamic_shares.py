"""Dynamic shares in one process: what is refused, what checkpoints hold, and which changes a run survives."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker
from pipelines import BrokenDiskError, Numbers

import staging_tf1 as staging
from staging_tf1.cluster.dealing import Names
from staging_tf1.errors import CheckpointError, ClusterError, ResumeError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.supply import LocalSupply, Pace
from staging_tf1.graph.acked import WINDOW, Acked
from staging_tf1.sources import ArraySource, GeneratorSource, Source

pytestmark = pytest.mark.usefixtures("quick_graphs")

# The hook saves at the start and at the end of each session, but not in between.
AT_THE_END: dict[str, Any] = dict(save_checkpoint_steps=1000, log_step_count_steps=0)
JOBS = {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}


def records(count: int = 24, batch_size: int = 2, **options: Any) -> ArraySource:
    return ArraySource(np.arange(count), **{**dict(batch_size=batch_size, shuffle=True, seed=5, epochs=1), **options})


def part(folder: Path, source: Any, steps: int | None = None, **options: Any) -> list[Any]:
    """Return what up to `steps` steps of a session that restores the checkpoint in `folder` have taken."""
    got: list[Any] = []
    with tf.Graph().as_default():
        batch = staging.staged(source, name="train", **{"share": "dynamic", **options})
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(checkpoint_dir=folder, **AT_THE_END) as sess:
            while not sess.should_stop() and len(got) != steps:
                taken, _ = sess.run([batch, step])
                got.append(taken["id"].tolist() if isinstance(taken, dict) else taken.tolist())
    return got


def save(folder: Path, cells: Any, fingerprint: dict[str, Any]) -> None:
    """Write a checkpoint with this position."""
    with tf.Graph().as_default():
        position = tf.get_variable("train/position", initializer=np.asarray(cells, np.int64), use_resource=True)
        text = tf.get_variable("train/fingerprint", initializer=json.dumps(fingerprint), use_resource=True)
        step = tf.train.get_or_create_global_step()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            tf.train.Saver([position, text, step]).save(sess, str(folder / "model.ckpt"), 7)


def with_gaps(consumed: Iterable[int]) -> list[int]:
    """Return the cells after these batches."""
    cells = Acked.first(0).cells
    for batch in consumed:
        cells[batch % WINDOW] = batch + WINDOW
    values: list[int] = cells.tolist()
    return values


def dynamic(source: Source) -> dict[str, Any]:
    return {**source.fingerprint(), "share": "dynamic"}


def batches(source: Source, numbers: Iterable[int]) -> list[list[int]]:
    return [source.batch(number).tolist() for number in numbers]


@pytest.mark.parametrize(
    ("values", "options", "error", "said"),
    [
        (lambda: GeneratorSource(lambda: iter([[1]]), resume="skip"), {}, ClusterError, "a GeneratorSource, which can"),
        (lambda: tf.data.Dataset.range(3), {}, ClusterError, "a tf.data.Dataset, which can only be read in order"),
        (
            lambda: tf.constant([1]),
            {},
            ClusterError,
            "got share='dynamic' and tensors, which can only be read in order",
        ),
        (records, {"devices": ["/cpu:0"] * 2}, ValueError, "got share='dynamic' and 2 devices, expected one. Run one "),
        (records, {"lockstep": True}, ValueError, "got share='dynamic' and lockstep=True, which has no thread"),
        (
            records,
            {"cluster": staging.Cluster(JOBS, "worker", 0, sync=True)},
            ClusterError,
            "got share='dynamic' and a cluster with sync=True",
        ),
        (records, {"share": "Dynamic"}, ValueError, "expected 'static', 'own' or 'dynamic'"),
    ],
)
def test_what_cannot_be_handed_out_is_refused_by_name(
    values: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with tf.Graph().as_default() as graph:
        given = values()
        before = len(graph.get_operations())
        with pytest.raises(error, match=said):
            staging.staged(given, **{"share": "dynamic", **options})
        assert len(graph.get_operations()) == before


def test_a_queue_has_no_position_to_hand_out_by() -> None:
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError, match="CustomRunner 'train' got share='dynamic', .* and a queue has none"):
            staging.CustomRunner(records(), cluster=staging.Cluster(JOBS, "worker", 0), share="dynamic", name="train")
        assert graph.get_operations() == []


# One thread, where the default run has three.
@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_resumes_with_the_first_batch_that_no_step_has_consumed(tmp_path: Path, threads: int) -> None:
    parts = [part(tmp_path, records(), steps, num_threads=threads, capacity=3) for steps in (3, 1, None)]
    assert list(itertools.chain(*parts)) == batches(records(), range(12))
    assert part(tmp_path, records()) == []
    assert part(tmp_path, records(epochs=2)) == batches(records(epochs=2), range(12, 24))


def test_gaps_come_first(tmp_path: Path) -> None:
    save(tmp_path, with_gaps([0, 1, 4, 7]), dynamic(records()))
    assert part(tmp_path, records()) == batches(records(), [2, 3, 5, 6, 8, 9, 10, 11])


def test_a_source_without_a_seed_gets_that_of_the_checkpoint(tmp_path: Path) -> None:
    got = part(tmp_path, records(seed=None), 5) + part(tmp_path, records(seed=None))
    assert sorted(itertools.chain(*got)) == list(range(24))


def test_resume_restart_begins_with_the_first_batch(tmp_path: Path) -> None:
    save(tmp_path, with_gaps([0, 1, 4]), dynamic(records()))
    assert part(tmp_path, records(), resume="restart") == batches(records(), range(12))


def test_a_run_may_change_between_static_and_dynamic_shares_where_there_are_no_gaps(tmp_path: Path) -> None:
    got = part(tmp_path, records(), 3, share="static")
    got += part(tmp_path, records(), 2)
    got += part(tmp_path, records(), 2, share="static")
    got += part(tmp_path, records(batch_size=1), 4)
    got += part(tmp_path, records())
    assert sorted(itertools.chain(*got)) == list(range(24))


GAPS = (
    "'train': the checkpoint was saved with share='dynamic', whose workers consume batches out of order: all before "
    "batch 2, and 2 after it. In another order of batches (share was 'dynamic', is 'static'), to continue at batch 2 "
    "repeats those 2. Give staged() the same source and share='dynamic' as before, or resume='ignore' to repeat them, "
    "or resume='restart' to begin with the first batch."
)


def test_gaps_need_dynamic_shares(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path, with_gaps([0, 1, 4, 7]), dynamic(records()))
    with pytest.raises(ResumeError) as caught:
        part(tmp_path, records(), share="static")
    assert str(caught.value) == GAPS
    assert part(tmp_path, records(), share="static", resume="ignore") == batches(records(), range(2, 12))
    assert "resume='ignore' repeats them." in caplog.text


# A return to static shares as between runs without gaps.
@pytest.mark.slow_cases("static")
@pytest.mark.parametrize("share", ["static", "dynamic"])
def test_another_order_is_refused(tmp_path: Path, share: str) -> None:
    part(tmp_path, records(), 4)
    with pytest.raises(
        ResumeError, match="the checkpoint holds position 4 in another order of batches: seed was 5, is "
    ):
        part(tmp_path, records(seed=6), share=share)
    assert len(part(tmp_path, records(seed=6), share=share, resume="ignore")) == 8


@pytest.mark.parametrize("cells", [[], [3, 1], [0, 2, 4], list(range(1, WINDOW + 1))])
def test_a_damaged_position_is_refused(tmp_path: Path, cells: list[int]) -> None:
    save(tmp_path, cells, dynamic(records()))
    with pytest.raises(CheckpointError, match="'train/position' in the checkpoint is damaged"):
        part(tmp_path, records())


BAD = {0, 3, 4, 9}


def broken() -> Numbers:
    def trouble(number: int, batch: Any) -> Any:
        if number in BAD:
            raise BrokenDiskError(f"no batch {number}")
        return batch

    return Numbers(10, trouble)


# One thread, where the default run has three.
@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_skipped_batch_counts_as_consumed_at_once(tmp_path: Path, threads: int) -> None:
    options = dict(ignored_exception_types=BrokenDiskError, num_threads=threads)
    got = [part(tmp_path, broken(), steps, **options) for steps in (1, 2, None)]
    assert list(itertools.chain(*got)) == [[number] for number in range(10) if number not in BAD]
    cells = tf.train.load_variable(tf.train.latest_checkpoint(tmp_path), "train/position")
    assert Acked(cells).base == 10


def test_the_error_of_a_source_names_its_batch(tmp_path: Path) -> None:
    save(tmp_path, with_gaps([0, 1, 3]), dynamic(broken()))
    with pytest.raises(BrokenDiskError) as caught:
        part(tmp_path, broken())
    assert caught.value.__notes__ == ["raised while the source made batch 4"]


def test_figures_and_drain() -> None:
    with tf.Graph().as_default():
        batch = staging.staged(records(), share="dynamic", name="train")
        with staging.StagingSession() as sess:
            sess.run(batch)
            sess.drain()
            rest = 0
            with pytest.raises(tf.errors.OutOfRangeError):
                while True:
                    sess.run(batch)
                    rest += 1
        (figures,) = sess.stats()
    assert figures.batches == 1 + rest and rest <= 4
    assert figures.kind == "source"


def test_a_failed_step_has_its_batch_or_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[LocalSupply] = []
    monkeypatch.setattr(LocalSupply, "step_failed", lambda self: failed.append(self))
    with tf.Graph().as_default() as graph:
        batch = staging.staged(records(), share="dynamic", name="train")
        with tf.control_dependencies([batch.op.inputs[0]]):
            failing = tf.raw_ops.Assert(condition=False, data=["a step that fails"])
        (pipeline,) = pipelines_of(graph)
        assert pipeline.position is not None
        with staging.StagingSession() as sess:
            for _ in range(3):
                with pytest.raises(tf.errors.InvalidArgumentError):
                    sess.run([batch, failing])
            got = [sess.run(batch).tolist() for _ in range(9)]
            acked = Acked(sess.run(pipeline.position.saved[0]))
    assert got == batches(records(), range(3, 12))
    assert {*range(3, 12)} <= {number for number in range(12) if acked.has(number)}
    assert len(failed) == 3, "that of a worker looks for what they have lost"


def test_a_loop_that_fails_gives_its_batches_to_the_others() -> None:
    asks = Names("train").ask("worker 0")
    with only_worker() as cluster:
        with tf.Graph().as_default(), pytest.raises(ZeroDivisionError):
            with cluster.device_scope():
                batch = staging.staged(records(), cluster=cluster, share="dynamic", name="train")
            with staging.StagingSession(cluster=cluster) as sess:
                sess.run(batch)
                raise ZeroDivisionError
        assert cluster.member.ledger.read([asks])[asks]["closed"]


def test_what_is_missing_is_supplied_and_then_all_that_follows() -> None:
    supply = LocalSupply(Acked([8, 5, 2, 7]), None, lambda batch: None)
    assert [supply.next() for _ in range(4)] == [(0, 2), (1, 5), (2, 6), (3, 7)]
    supply.stop()
    assert supply.next() is None


def steady(secs: float, count: int) -> Iterator[float]:
    return itertools.islice(itertools.count(0.0, secs), count)


@pytest.mark.parametrize(("secs", "ahead"), [(30.0, 1), (1.0, 1), (0.1, 10), (0.001, 1000), (0.0001, 1024)])
def test_about_a_second_of_work_is_asked_for(secs: float, ahead: int) -> None:
    pace = Pace()
    now = 0.0
    for now in steady(secs, 30_000):
        pace.took(now)
        found = pace.ahead(now)
    assert found == pytest.approx(ahead, abs=1)
    assert pace.ahead(now + 3) == 1
