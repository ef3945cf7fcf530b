"""Which records were in a step: from a checkpoint, and from the error of a step that failed or gave NaN."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipelines import BrokenDiskError, Numbers
from resuming import TOWERS, bad_numbers, resumed_steps
from slow import examples

import staging_tf1 as staging
from staging_tf1.errors import CheckpointError, ResumeError, StagingWarning
from staging_tf1.sources import ArraySource, MapSource, RecordSource, concatenate, mix, write_tfrecords

pytestmark = pytest.mark.usefixtures("quick_graphs")


def numbered(count: int = 40, **options: Any) -> ArraySource:
    return ArraySource(np.arange(count), **{**dict(batch_size=3, epochs=None, shuffle=True, seed=5), **options})


def texts() -> RecordSource:
    """Rows with several records, each full of its number."""
    lengths = [1 + number % 3 for number in range(30)]
    records = [[number] * length for number, length in enumerate(lengths)]
    return MapSource(records, batch_size=3, shuffle=True, seed=5).packed(5, lengths)


def ids_of(batch: Any) -> list[int]:
    """The records of a batch that a step had."""
    if isinstance(batch, tuple):
        rows, segments, _ = batch
        return [int(number) for row, marks in zip(rows, segments) for number in dict.fromkeys(row[marks > 0].tolist())]
    return [int(number) for number in np.ravel(batch)]


SOURCES: dict[str, Callable[[], RecordSource]] = {
    "shuffled": numbered,
    "drawn": lambda: numbered(seed=None),
    "of epochs": lambda: numbered(epochs=3, drop_remainder=True),
    "a shard": lambda: numbered().shard(1, 2),
    "a split": lambda: numbered().split(0.8, 1)[1].with_options(batch_size=2),
    "mixed": lambda: mix([numbered(), numbered(9)], [0.6, 0.4]),
    "packed": texts,
}


def run(folder: Path, source: RecordSource, steps: int, **options: Any) -> list[list[list[int]]]:
    """Return the records of each tower in each step of a run, which resumes and saves at its end."""
    got = []
    quiet = dict(save_checkpoint_steps=1000, save_summaries_steps=0, log_step_count_steps=0, save_graph_def=False)
    with tf.Graph().as_default():
        staged = staging.staged(source, name="train", **options)
        towers = staged if isinstance(staged, list) else [staged]
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(checkpoint_dir=str(folder), **quiet) as sess:
            for _ in range(steps):
                got.append([ids_of(batch) for batch in sess.run([towers, train])[0]])
    return got


def found(source: RecordSource, folder: Any, step: int) -> list[list[int]]:
    """The records of each tower in a step, by the number that they have in the part they come from."""
    return [
        [origin.record for origins in tower.origins for origin in origins]
        for tower in staging.records_of_step(source, folder, step)
    ]


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    towers=st.integers(1, 2),
    threads=st.integers(1, 2),
    runs=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    skip=st.sets(st.integers(0, 3), max_size=3),
    left_out=st.integers(0, 5),
)
def test_each_step_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    towers: int,
    threads: int,
    runs: list[int],
    skip: set[int],
    left_out: int,
) -> None:
    folder, source = tmp_path_factory.mktemp("run"), SOURCES[kind]()
    source = source.without(source.record_ids(1)[:left_out])
    options = dict(devices=TOWERS[:towers], num_threads=threads, skip=sorted(skip))
    # A source of the same program, made again for each run.
    got = list(itertools.chain(*(run(folder, source, steps, **options) for steps in runs)))
    assert [found(source, folder, step) for step in range(1, len(got) + 1)] == got
    # The steps that follow the checkpoint are those of the next run.
    following = [found(source, folder, len(got) + step) for step in (1, 2)]
    assert run(folder, source, 2, **options) == following
    for number, tower in enumerate(staging.records_of_step(source, folder, 2)):
        shard = source.shard(number, towers) if towers > 1 else source
        assert len(tower.record_ids) == len(tower.origins) and tower.record_ids.dtype == np.int64
        assert tower.record_ids.tolist() == shard.record_ids(tower.batch).tolist() or kind == "drawn"


def test_the_records_can_be_left_out(tmp_path: Path) -> None:
    before = run(tmp_path, numbered(), 6)
    (fifth,) = staging.records_of_step(numbered(), tmp_path, 5)
    assert fifth.record_ids.tolist() == before[4][0]
    rest = numbered().without(fifth.record_ids)
    assert not {*fifth.record_ids.tolist()} & {n for (ids,) in run(tmp_path, rest, 30) for n in ids}


def test_what_a_checkpoint_holds_may_be_given_itself(tmp_path: Path) -> None:
    got = run(tmp_path, numbered(), 3)
    (path,) = {str(index)[: -len(".index")] for index in tmp_path.glob("*.index") if "-3" in index.name}
    reader = tf.train.load_checkpoint(path)
    held = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    for checkpoint in (tmp_path, str(tmp_path), path, f"{path}.index", held):
        assert found(numbered(), checkpoint, 2) == got[1]
    assert found(numbered(), {**held, "train/position": [3]}, 2) == got[1]


def test_a_file_and_a_place_in_it_are_named(tmp_path: Path) -> None:
    write_tfrecords([b"%d" % number for number in range(9)], str(tmp_path / "a.tfrecord"))
    files = staging.sources.TFRecordSource(str(tmp_path / "a.tfrecord"), batch_size=3, epochs=None, parse_fn=int)
    both = concatenate([files.take(4), files.skip(6)]).with_options(batch_size=5)
    got = run(tmp_path / "model", both, 1)
    (first,) = staging.records_of_step(both, tmp_path / "model", 1)
    assert got == [[[0, 1, 2, 3, 6]]] and first.record_ids.tolist() == [0, 1, 2, 3, 4]
    (origin,) = first.origins[4]
    assert (origin.part, origin.record) == ((1,), 6) and "a.tfrecord" in origin.name


def test_steps_beyond_the_ends(tmp_path: Path) -> None:
    source = numbered(10, epochs=1)
    run(tmp_path, source, 2, skip=[1])
    assert found(source, tmp_path, 3) == [source.record_ids(3).tolist()]
    for step, why in ((4, "the data end before it"), (2**40, "the data end before it")):
        with pytest.raises(IndexError, match=rf"step {step} had no batch of ArraySource\(10 rec.*: {why}\.$"):
            staging.records_of_step(source, tmp_path, step)
    whole = source.without([1])
    run(tmp_path / "other", whole, 2)
    with pytest.raises(IndexError, match="step 5 had no batch"):
        staging.records_of_step(whole, tmp_path / "other", 5)


def held(position: Any = (3,), step: Any = 3, **fingerprint: Any) -> dict[str, Any]:
    """What a checkpoint holds."""
    text = json.dumps({**numbered().fingerprint(), **fingerprint})
    return {"train/position": np.array(position), "train/fingerprint": np.array(text), "global_step": np.array(step)}


def test_another_number_of_steps_is_told() -> None:
    with pytest.warns(StagingWarning, match=r"checkpoint is at step 3, and 5 batches of 'train' have been consumed"):
        assert found(numbered(), held([5]), 3) == [numbered().record_ids(4).tolist()]
    with pytest.warns(StagingWarning), pytest.raises(IndexError, match="the run began after it"):
        found(numbered(), held([5], 9), 3)
    with pytest.raises(ValueError, match=r"each of 7 steps had a batch of one tower of 'train' only.* had 3, 4\."):
        found(numbered(), held([3, 4], 7), 3)


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "another seed": (held(seed=6), ResumeError, "saved with another source than ArraySource.*: seed was 6, is 5"),
    "without": (held(without="3"), ResumeError, r"without was 3, is nothing\. Pass the source as it was in that run"),
    "dynamic": (held([*range(2**15)], share="dynamic"), ValueError, "share='dynamic', whose workers take batches out"),
    "own": (held(share="own", workers=2), ValueError, "share='own', whose workers have inputs of their own"),
    "no position": ({"global_step": np.array(3)}, CheckpointError, "has no position of a pipeline, expected NAME/"),
    "no step": ({k: v for k, v in held().items() if k != "global_step"}, CheckpointError, "has no 'global_step'"),
    "a damaged position": (held([-3]), CheckpointError, r"'train/position' in the checkpoint is damaged: got \[-3\]"),
    "a damaged fingerprint": ({**held(), "train/fingerprint": np.array("x")}, CheckpointError, "'train/fingerprint'"),
    "a damaged skip": (held(skip="x"), CheckpointError, "the saved skip= is damaged: 'x'"),
    "nothing": ({}, CheckpointError, "the checkpoint has no position of a pipeline"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_checkpoint_of_the_source(kind: str) -> None:
    checkpoint, error, text = WRONG[kind]
    with pytest.raises(error, match=text):
        staging.records_of_step(numbered(), checkpoint, 2)


def test_of_several_pipelines_one_is_named(tmp_path: Path) -> None:
    two = {**held(), **{name.replace("train", "other"): value for name, value in held([1]).items()}}
    with pytest.raises(ValueError, match=r"the checkpoint has several pipelines: 'other', 'train'\. Pass name="):
        staging.records_of_step(numbered(), two, 1)
    assert staging.records_of_step(numbered(), two, 3, name="train")[0].batch == 2
    with pytest.raises(CheckpointError, match=r"got name='x', expected a pipeline of the checkpoint: 'other', 'train'"):
        staging.records_of_step(numbered(), two, 1, name="x")
    with pytest.raises(CheckpointError, match=r"^records_of_step\(\): there is no checkpoint at"):
        staging.records_of_step(numbered(), tmp_path, 1)


@pytest.mark.parametrize(
    "arguments",
    [([1, 2], {}, 1), (Numbers(3), {}, 1), (numbered(), 3, 1), (numbered(), held(), 0), (numbered(), held(), 1.0)],
    ids=["a list", "a source of batches", "a number", "step 0", "a float"],
)
def test_what_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^records_of_step\(\) got (source|checkpoint|step)=.*, exp"):
        staging.records_of_step(*arguments)


# The error of a step that fails.


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def failing(batch: Any) -> Any:
    """Fails after the batch has been taken, at number 13."""
    bad = tf.reduce_any(tf.equal(batch, 13))
    with tf.control_dependencies([tf.Assert(tf.logical_not(bad), ["thirteen"])]):
        return tf.identity(batch)


FEEDS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "threads": dict(num_threads=3, capacity=4),
    "lockstep": dict(lockstep=True),
    "dynamic": dict(share="dynamic"),
    "skipping": dict(skip=[1, 3], num_threads=2),
}


@pytest.mark.parametrize("feed", FEEDS)
def test_the_error_of_a_step_names_its_batch(tmp_path: Path, feed: str) -> None:
    source = numbered(20, shuffle=False, batch_size=2, epochs=1)
    # The number is that of the source, also in a run that has resumed.
    resumed_steps(tmp_path, source, 2, name="train", **FEEDS[feed])
    with tf.Graph().as_default():
        checked = failing(staging.staged(source, name="train", **FEEDS[feed]))
        tf.train.get_or_create_global_step()
        seen = []
        with staging.StagingSession(checkpoint_dir=str(tmp_path)) as sess:
            while not sess.should_stop():
                try:
                    seen += sess.run(checked).tolist()
                except tf.errors.InvalidArgumentError as error:
                    assert notes(error) == [
                        "the failed step had batch 6 of 'train' (its records: source.record_ids(6))"
                    ]
                    (stats,) = sess.stats()
                    assert stats.failed_numbers == (6,) and stats.last_number == 6
                    assert "; failed steps had batches 6 (source.record_ids)" in str(stats)
        assert 12 not in seen and seen[-1] == 19
    assert source.record_ids(6).tolist() == [12, 13]
    assert sess.stats()[0].last_number == 9 and sess.stats()[0].failed_numbers == (6,)


def test_it_names_the_shards_of_towers_and_a_drawn_seed() -> None:
    source = numbered(20, seed=None, batch_size=2)
    with tf.Graph().as_default():
        towers = staging.staged(source, name="train", devices=TOWERS, skip=[0])
        checked = tf.Assert(False, [towers[0], towers[1]])
        with staging.StagingSession() as sess:
            assert len(sess.run(towers)) == 2
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run([checked, towers])
    assert sorted(notes(caught.value)) == [
        f"the failed step had batch 2 of 'train/{tower}' (its records: source.with_seed({source.seed}).shard({tower}, "
        f"2).record_ids(2))"
        for tower in range(2)
    ]


def test_of_a_source_of_batches_it_names_the_batch() -> None:
    with tf.Graph().as_default():
        batch = staging.staged(bad_numbers(), ignored_exception_types=BrokenDiskError, name="train")["id"]
        checked = tf.Assert(tf.less(batch[0], 5), [batch])
        with staging.StagingSession() as sess:
            assert [sess.run([batch, checked])[0].tolist() for _ in range(2)] == [[2], [3]]
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run([batch, checked])
    assert notes(caught.value) == ["the failed step had batch 5 of 'train' (its records: source.batch(5))"]


def test_a_stream_and_a_step_that_took_nothing_have_no_number() -> None:
    with tf.Graph().as_default():
        batch = staging.staged(lambda: iter([np.array([1])] * 3))
        fail = tf.Assert(False, [batch])
        with staging.StagingSession() as sess:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run([batch, fail])
            assert notes(caught.value) == [] and sess.stats()[0].failed_batches == (0,)
            assert (sess.stats()[0].failed_numbers, sess.stats()[0].last_number) == ((), None)
    with tf.Graph().as_default():
        staging.staged(numbered())
        fail = tf.Assert(False, [1])
        with staging.StagingSession() as sess:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run(fail)
            assert notes(caught.value) == [] and sess.stats()[0].last_number is None


def test_the_error_of_a_loss_that_is_nan_names_the_batch() -> None:
    source = numbered(20, shuffle=False, batch_size=2)
    with tf.Graph().as_default():
        batch = staging.staged(source, name="train", skip=[2])
        value = tf.cast(tf.reduce_min(batch), tf.float32)
        loss = tf.where(tf.equal(value, 8.0), tf.constant(np.nan), value)
        other = staging.staged(source, name="other")
        with pytest.raises(tf.train.NanLossDuringTrainingError) as caught:
            with staging.StagingSession(hooks=[tf.train.NanTensorHook(loss)]) as sess:
                sess.run(other)
                while True:
                    sess.run(loss)
    assert notes(caught.value) == ["the step had batch 4 of 'train' (its records: source.record_ids(4))"]
    assert sess.stats()[0].last_number == 4 and source.record_ids(4).tolist() == [8, 9]


def test_a_pipeline_that_starts_again_goes_on_with_its_numbers() -> None:
    source = numbered(40, shuffle=False, batch_size=2)
    with tf.Graph().as_default():
        batch = staging.staged(source, name="train", skip=[3], capacity=4)
        fail = tf.Assert(False, [batch])
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            for expected in (0, 4):
                coord = tf.train.Coordinator()
                threads = staging.start(sess, coord)
                assert sess.run(batch).tolist() == [2 * expected, 2 * expected + 1]
                with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                    sess.run([batch, fail])
                (note,) = notes(caught.value)
                assert f"batch {expected + 1} of 'train'" in note
                assert sess.run(batch).tolist() == [2 * expected + 4, 2 * expected + 5]
                coord.request_stop()
                coord.join(threads, stop_grace_period_secs=60)
