"""Records parsed in the graph, from the file to the step: each record once, in order, also after a restore."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArrayRecordSource, TFRecordSource, write_array_records

pytestmark = pytest.mark.usefixtures("quick_graphs")

RECORDS, BATCH = 26, 4
FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "pair": tf.io.FixedLenFeature([2], tf.float32),
    "words": tf.io.VarLenFeature(tf.string),
}


def _words(number: int) -> list[bytes]:
    return [b"%d" % number] * (number % 3)


def _example(number: int) -> bytes:
    feature = {
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "pair": tf.train.Feature(float_list=tf.train.FloatList(value=[number / 2, -number])),
        "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=_words(number))),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / f"{part}.tfrecord") for part in range(2)]
    for part, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(13 * part, 13 * (part + 1)):
                writer.write(_example(number))
    return paths


def _source(files: list[str], kind: Any = TFRecordSource) -> Any:
    return kind(files, batch_size=BATCH, features=FEATURES, shuffle=True, seed=7, epochs=2)


def _take(source: Any, folder: Any, count: int | None, **staged: Any) -> list[list[int]]:
    """Take up to `count` batches, starting at the checkpoint in `folder`; return their ids."""
    got: list[list[int]] = []
    with tf.Graph().as_default():
        batch = staging.staged(source, **staged)
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        options = dict(save_checkpoint_steps=1, log_step_count_steps=0, save_graph_def=False)
        with staging.StagingSession(checkpoint_dir=str(folder), **options) as sess:
            while not sess.should_stop() and (count is None or len(got) < count):
                got.append(_checked(sess.run([batch, train])[0]))
    return got


def _checked(batch: dict[str, Any]) -> list[int]:
    ids: list[int] = batch["id"].tolist()
    assert batch["pair"].tolist() == [[number / 2, -number] for number in ids]
    words = batch["words"]
    rows = [[word for word, (row, _) in zip(words.values, words.indices) if row == place] for place in range(len(ids))]
    assert rows == [_words(number) for number in ids]
    return ids


# Some threads, where the default run has one, and more.
@pytest.mark.slow_cases("2|3")
@pytest.mark.parametrize("num_threads", [1, 2, 3, 4])
def test_every_record_is_parsed_and_delivered_once_in_order(files: list[str], tmp_path: Any, num_threads: int) -> None:
    source = _source(files)
    got = _take(source, tmp_path, None, num_threads=num_threads, capacity=3)
    assert got == [source.record_ids(k).tolist() for k in range(source.num_batches or 0)]
    assert sorted(np.concatenate(got)) == sorted([*range(RECORDS)] * 2)


@pytest.mark.slow_cases("ArrayRecordSource-lockstep|TFRecordSource-threads")
@pytest.mark.parametrize("how", [dict(num_threads=4, capacity=5), dict(lockstep=True)], ids=["threads", "lockstep"])
@pytest.mark.parametrize("kind", [TFRecordSource, ArrayRecordSource])
def test_a_run_that_was_stopped_goes_on_with_the_next_record(
    kind: Any, files: list[str], tmp_path: Any, how: Any
) -> None:
    if kind is ArrayRecordSource:
        pytest.importorskip("array_record")
        files = write_array_records(map(_example, range(RECORDS)), tmp_path / "a.array_record")
    source = _source(files, kind)
    parts = [_take(source, tmp_path, count, **how) for count in (1, 5, None)]
    assert [len(part) for part in parts] == [1, 5, 8]
    assert [batch for part in parts for batch in part] == [
        source.record_ids(k).tolist() for k in range(source.num_batches or 0)
    ]


def test_what_the_graph_parses_can_be_cast_and_declared(files: list[str], graph: Any) -> None:
    spec = {
        "id": tf.TensorSpec([None], tf.int64),
        "pair": tf.TensorSpec([None, 2], tf.float32),
        "words": tf.SparseTensorSpec([None, None], tf.string),
    }
    batch = staging.staged(_source(files), spec=spec, cast={"pair": tf.float16})
    assert batch["pair"].dtype == tf.float16 and batch["pair"].shape.as_list() == [None, 2]
    with staging.StagingSession() as sess:
        _checked(sess.run(batch))
