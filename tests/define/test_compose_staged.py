"""Combined sources and map-style datasets through `staged()`: checkpoints, towers, bad records, messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import ResumeError
from staging_tf1.sources import ArraySource, MapSource, RecordSource, SequenceSource, concatenate, mix

pytestmark = pytest.mark.usefixtures("quick_graphs")

CPU = "/cpu:0"
# The hook saves at the start and at the end of each session, but not in between. The graph as text takes long to write.
AT_THE_END: dict[str, Any] = dict(save_checkpoint_steps=1000, log_step_count_steps=0, save_graph_def=False)


def numbered(first: int, count: int, **options: Any) -> ArraySource:
    return ArraySource(
        np.arange(first, first + count), **{**dict(batch_size=4, shuffle=True, seed=5, epochs=2), **options}
    )


def part(folder: Any, source: Any, towers: int, steps: int | None, **options: Any) -> list[int]:
    """Return the records of `steps` common steps, or of all, in a session that restores the checkpoint in `folder`."""
    got: list[int] = []
    with tf.Graph().as_default():
        parts = staging.staged(source, devices=[CPU] * towers, **options)
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(checkpoint_dir=str(folder), **AT_THE_END) as sess:
            taken = 0
            while not sess.should_stop() and taken != steps:
                got.extend(record for batch in sess.run([parts, train])[0] for record in batch.tolist())
                taken += 1
    return got


SOURCES: dict[str, Callable[[], RecordSource]] = {
    "split": lambda: numbered(0, 60).split(0.8, seed=1)[0],
    "concatenate": lambda: concatenate([numbered(0, 24), numbered(100, 48).take(24)]),
    "mix": lambda: mix([numbered(0, 36), numbered(100, 12)], [0.75, 0.25], seed=7),
    "by_length": lambda: numbered(0, 48).by_length(np.arange(48) % 13, group=8, block=3),
    "map": lambda: MapSource(list(range(48)), batch_size=4, shuffle=True, seed=5, epochs=2, threads=2),
}


@pytest.mark.slow_cases("by_length|split|concatenate")
@pytest.mark.parametrize("name", SOURCES)
def test_a_combined_source_resumes_on_other_towers(tmp_path: Any, name: str) -> None:
    make = SOURCES[name]
    whole = [record for batch in make().batches() for record in batch.tolist()]
    got: list[int] = []
    for towers, steps in ((1, 4), (2, 2), (1, None)):  # 16 records each, and the rest
        got += part(tmp_path, make(), towers, steps)
        assert Counter(got) == Counter(whole[: len(got)]), "what was consumed is the beginning of the common order"
    assert len(got) == len(whole) == 96


@pytest.fixture(scope="module")
def of_forty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with the checkpoint of a run that takes 40 of 60 records. A session that refuses it writes nothing."""
    folder = tmp_path_factory.mktemp("of_forty")
    part(folder, numbered(0, 60).take(40), 1, 2)
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.take(39), "records was 'ArraySource(60).take(40)', is 'ArraySource(60).take(39)'"),
        (
            lambda s: s.split(0.5, 1)[0],
            "take(40)', is 'ArraySource(60).split(0.5, seed=1)[0]'",
        ),
        (lambda s: s.take(40).by_length(range(40)), "order was 'not saved', is 'by_length(group=4, block=50, lengths="),
        (lambda s: mix([s, s], seed=5), "source was 'ArraySource', is 'Mixture'"),
    ],
)
def test_a_checkpoint_of_other_records_is_refused_by_name(of_forty: Any, change: Any, said: str) -> None:
    with pytest.raises(ResumeError) as caught:
        part(of_forty, change(numbered(0, 60)), 1, 1)
    assert said in str(caught.value)


class Batches(tf.keras.utils.Sequence):  # type: ignore[misc]
    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: int) -> Any:
        return np.full(2, k), np.full(2, -k)


def test_keras_datasets_are_sequences(graph: Any) -> None:
    batch = staging.staged(SequenceSource(Batches(), epochs=1))
    with staging.StagingSession() as sess:
        assert [sess.run(batch)[0].tolist() for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(TypeError, match="Its elements are batches: use SequenceSource"):
        MapSource(Batches(), batch_size=2)


class Items:
    """A map-style dataset."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> int:
        return i


def test_a_dataset_itself_is_refused_with_the_source_to_use(graph: Any) -> None:
    message = r"staged\(\) .*got a dataset of 3 elements as values .* Wrap it: staging_tf1\.sources\.MapSource\(dataset"
    with pytest.raises(TypeError, match=message):
        staging.staged(Items())
    assert not graph.get_operations()
