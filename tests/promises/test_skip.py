"""Batches and records that are left out while a run goes on: `skip=` and `without`, beside a naive model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import only_worker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipelines import Numbers
from resuming import BAD, TOWERS, bad_numbers, broken, resumed_steps
from slow import examples, with_slow

import staging_tf1 as staging
from staging_tf1.errors import ClusterError, ResumeError
from staging_tf1.sources import ArraySource, GeneratorSource, MapSource, RecordSource, mix

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT = 40


def numbered(**options: Any) -> RecordSource:
    return ArraySource(np.arange(COUNT), **{**dict(batch_size=3, epochs=2, shuffle=True, seed=5), **options})


def lengths(source: RecordSource) -> list[int]:
    return [number * 7 % 11 for number in range(source.num_records)]


SOURCES: dict[str, Callable[[], RecordSource]] = {
    "shuffled": numbered,
    "in order": lambda: numbered(shuffle=False, batch_size=2, epochs=1),
    "singles": lambda: numbered(batch_size=1, epochs=None),
    "across epochs": lambda: numbered(across_epochs=True, epochs=3),
    "split by_length": lambda: (lambda s: s.by_length(lengths(s)))(numbered().split(0.8, 1)[0]),
    "weighted": lambda: numbered().weighted(np.arange(COUNT) + 1),
    "take": lambda: numbered().skip(3).take(30),
    "mixed": lambda: mix([numbered(), numbered().take(9)], [0.6, 0.4]),
}
FEEDS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "threads": dict(num_threads=3, capacity=4),
    "towers": dict(devices=TOWERS),
    "towers, threads": dict(devices=TOWERS, num_threads=2),
    "lockstep": dict(lockstep=True),
    "towers in lockstep": dict(devices=TOWERS, lockstep=True),
    "dynamic": dict(share="dynamic", num_threads=2),
    "processes": dict(num_processes=1),
}


class Model:
    """Which batches the steps of a run get, batch by batch, from the source without anything left out."""

    def __init__(self, whole: RecordSource, towers: int) -> None:
        self.shards = [whole.shard(tower, towers) for tower in range(towers)] if towers > 1 else [whole]
        # How far each tower has come.
        self.positions = [0] * towers

    def step(self, skip: set[int], without: set[int]) -> list[list[int]] | None:
        """Return the records of each tower in the next step; None at the end."""
        found, positions = [], []
        for shard, number in zip(self.shards, self.positions, strict=True):
            while shard.num_batches is None or number < shard.num_batches:
                records = [record for record in shard.record_ids(number).tolist() if record not in without]
                number += 1
                if records and number - 1 not in skip:
                    break
            else:
                return None
            found.append(records)
            positions.append(number)
        self.positions = positions
        return found


def spans(numbers: set[int]) -> list[Any]:
    """As a program may write them: ranges and numbers, some of them twice."""
    one_by_one = [range(number, number + 1) if number % 2 else np.int64(number) for number in sorted(numbers)]
    return [*one_by_one, *[*numbers][:2]]


# The number of steps; the batches that are left out, and the records. Each run of a program has its own.
RUNS = st.lists(
    st.tuples(st.integers(1, 5), st.sets(st.integers(0, 6), max_size=5), st.sets(st.integers(0, 39), max_size=12)),
    min_size=1,
    max_size=3,
)


# The default run tries each feed once or twice. A tower that passes a batch without a record ends before the others.
@pytest.mark.filterwarnings("ignore::staging_tf1.errors.LeftoverWarning")
@pytest.mark.parametrize("feed", FEEDS)
@settings(max_examples=examples(20) if with_slow() else 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(SOURCES)), runs=RUNS)
def test_all_that_is_not_left_out_keeps_its_place(
    tmp_path_factory: pytest.TempPathFactory, feed: str, kind: str, runs: Any
) -> None:
    folder, options = tmp_path_factory.mktemp("runs"), FEEDS[feed]
    model = Model(SOURCES[kind](), len(options.get("devices", [None])))
    for steps, skip, without in runs:
        if feed == "dynamic":
            # A batch is left out when it is handed out, which is before the steps have come there.
            _, skip, without = runs[0]
        source = SOURCES[kind]().without(sorted(without))
        expected = [batches for _ in range(steps) if (batches := model.step(skip, without)) is not None]
        if len(expected) < steps:
            return  # The towers have unequal rests there: test_towers_end.py
        if kind == "mixed":
            expected = [[[n if n < COUNT else n - COUNT for n in ids] for ids in towers] for towers in expected]
        got = resumed_steps(folder, source, steps, name="train", skip=spans(skip), **options)
        assert got == expected
        if feed != "dynamic":
            assert tf.train.load_checkpoint(str(folder)).get_tensor("train/position").tolist() == model.positions


@settings(max_examples=examples(25))
@given(
    feed=st.sampled_from(["a thread", "threads", "lockstep", "dynamic"]),
    skip=st.sets(st.integers(0, 27), max_size=25),
    without=st.sets(st.integers(0, 39), max_size=36),
)
def test_the_data_end_where_they_did(feed: str, skip: set[int], without: set[int]) -> None:
    model, expected = Model(numbered(), 1), []
    while (batches := model.step(skip, without)) is not None:
        expected.append(batches)
    if expected:
        source = numbered().without(sorted(without))
        assert resumed_steps(None, source, None, skip=spans(skip), **FEEDS[feed]) == expected


def saved(folder: Path, name: str) -> Any:
    return tf.train.load_checkpoint(str(folder)).get_tensor(f"staged/{name}")


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_a_change_is_logged_and_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "absl")
    source = numbered(shuffle=False, batch_size=2)
    assert resumed_steps(tmp_path, source, 2) == [[[0, 1]], [[2, 3]]]
    assert b"skip" not in saved(tmp_path, "fingerprint")
    assert resumed_steps(tmp_path, source.without([9]), 2, skip=[range(2, 4)]) == [[[8]], [[10, 11]]]
    (line,) = [line for line in logged(caplog, logging.INFO) if "keeps its place" in line]
    assert line == (
        "'staged': skip was nothing, is 2-3; without was nothing, is 9. All else keeps its place in the order."
    )
    assert b'"skip": "2-3"' in saved(tmp_path, "fingerprint") and b'"without": "9"' in saved(tmp_path, "fingerprint")
    caplog.clear()
    assert resumed_steps(tmp_path, source.without([9]), 1, skip=[range(2, 4)]) == [[[12, 13]]]
    assert [line for line in logged(caplog, logging.INFO) if "keeps its place" in line] == [], "nothing has changed"
    # It is too late for batch 1, and for the batches that were left out.
    assert resumed_steps(tmp_path, source, 2, skip=[1, 7]) == [[[16, 17]], [[18, 19]]]
    assert [line for line in logged(caplog, logging.WARNING) if "skip=" in line] == [
        "'staged': skip=1, 7 has batches before batch 7, where the checkpoint resumes. They were not left out."
    ]
    assert b'"skip": "1, 7"' in saved(tmp_path, "fingerprint") and b"without" not in saved(tmp_path, "fingerprint")


def test_another_source_is_another_source(tmp_path: Path) -> None:
    assert len(resumed_steps(tmp_path, numbered(), 2, skip=[9])) == 2
    for source in (numbered(seed=6), numbered().take(20), numbered(shuffle=False)):
        with pytest.raises(ResumeError, match="in another order of batches"):
            resumed_steps(tmp_path, source.without([1]), 1, skip=[8])


def test_numbers_that_mean_other_batches_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = numbered(shuffle=False, batch_size=2, epochs=1)
    skip = [1, range(12, 14)]
    assert resumed_steps(tmp_path, source, 4, skip=skip) == [[[0, 1]], [[4, 5]], [[6, 7]], [[8, 9]]]
    message = (
        r"^'staged': skip=1, 12-13 is as in the checkpoint, but these numbers are those of other batches now: batch_"
        r"size was 2, is 1\. Pass the numbers that the batches have now, leave out their records with source\.without\("
    )
    with pytest.raises(ResumeError, match=message):
        resumed_steps(tmp_path, source.with_options(batch_size=1), 1, skip=[1, 12, 13])
    # Five batches of two records are ten places: these numbers are the program's own.
    assert resumed_steps(tmp_path, source.with_options(batch_size=1), 2, skip=[range(13, 19)]) == [[[10]], [[11]]]
    assert resumed_steps(tmp_path, source, 2, skip=[range(7, 13)]) == [[[12, 13]], [[26, 27]]]
    assert resumed_steps(tmp_path, source, 2, skip=[17]) == [[[28, 29]], [[30, 31]]]
    with pytest.raises(ResumeError, match=r"of other batches now: towers was 1, is 2"):
        resumed_steps(tmp_path, source.with_options(epochs=2), 1, skip=[17], devices=TOWERS)
    got = resumed_steps(tmp_path, source.with_options(epochs=2), 9, skip=[17], devices=TOWERS, resume="ignore")
    assert got[:3] == [[[32, 34], [33, 35]], [[36, 38], [37, 39]], [[0, 2], [1, 3]]] and got[-1] == [[24, 26], [25, 27]]
    assert any("resume='ignore' leaves out what has these" in line for line in logged(caplog, logging.WARNING))


def test_what_is_behind_the_position_means_nothing(tmp_path: Path) -> None:
    source = numbered(shuffle=False, batch_size=2, epochs=1)
    assert len(resumed_steps(tmp_path, source, 4, skip=[range(1, 3)])) == 4
    # Twelve records are behind it, six batches for one tower or three for each of two.
    assert resumed_steps(tmp_path, source, 1, skip=[range(1, 3)], devices=TOWERS) == [[[12, 14], [13, 15]]]


def test_bad_batches_and_batches_that_are_left_out(tmp_path: Path) -> None:
    options: dict[str, Any] = dict(ignored_exception_types=type("", (), {}) and Exception, num_threads=2)
    good = [number for number in range(20) if number not in BAD]
    left = [number for number in good if number not in (3, 7, 10)]
    first = resumed_steps(tmp_path, bad_numbers(), 2, skip=[3, range(6, 8), 10], **options)
    rest = resumed_steps(tmp_path, bad_numbers(), None, skip=[3, range(6, 8), 10], **options)
    assert first + rest == [[[number]] for number in left]


def test_a_source_of_batches_can_leave_out_batches(tmp_path: Path) -> None:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.range(12).batch(2)
    source = staging.sources.GrainSource(dataset)
    assert resumed_steps(tmp_path, source, 2, skip=[1]) == [[[0, 1]], [[4, 5]]]
    assert resumed_steps(tmp_path, source, None, skip=[4]) == [[[6, 7]], [[10, 11]]]


@pytest.mark.parametrize("fingerprint", [{"source": "mine"}, {"rows": 9}, {}])
def test_the_order_of_an_unknown_source_stays(tmp_path: Path, fingerprint: dict[str, int | str]) -> None:
    class Mine(Numbers):
        """Its fingerprint does not say how it distributes records."""

        def fingerprint(self) -> dict[str, int | str]:
            return fingerprint

    assert resumed_steps(tmp_path, Mine(9), 2, skip=[1]) == [[[0]], [[2]]]
    assert resumed_steps(tmp_path, Mine(9), None, skip=[range(4, 7)]) == [[[3]], [[7]], [[8]]]


def test_dynamic_shares_keep_what_was_consumed_ahead(tmp_path: Path) -> None:
    source = numbered(shuffle=False, batch_size=2, epochs=1)
    options: dict[str, Any] = dict(share="dynamic")
    assert len(resumed_steps(tmp_path, source, 3, skip=[1, range(4, 6)], **options)) == 3
    rest = resumed_steps(tmp_path, source, None, skip=[range(8, 19)], **options)
    # Batches 0, 2 and 3 were consumed, 1 was left out. Those after it may have been acknowledged, too.
    assert rest[-1] == [[38, 39]] and [[14, 15]] in rest and [[2, 3]] not in rest


def test_the_workers_of_a_cluster_leave_out_the_same() -> None:
    with only_worker() as cluster, tf.Graph().as_default(), cluster.device_scope():
        batch = staging.staged(numbered(shuffle=False).without([4]), cluster=cluster, skip=[0], name="train")
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(cluster=cluster) as sess:
            assert sess.run([batch, step])[0].tolist() == [3, 5]
            from staging_tf1.feed.pipeline import pipelines_of
            from staging_tf1.feed.resume import _Resumption

            (pipeline,) = pipelines_of(tf.get_default_graph())
            values = sess.run(pipeline.position.saved)
            values[1] = values[1].replace(b'"skip": "0"', b'"skip": "1"')
            with pytest.raises(ClusterError, match="skip was 1, is 0"):
                _Resumption(pipeline).follow(values)


# What is given, and what it says. `test_without.py` has more: the same function checks both.
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "negative": ([-1], ValueError, r"got -1 in skip, expected batch numbers from 0"),
    "out of range": ([28], ValueError, r"got skip=28, expected batch numbers from 0 to 27: ArraySource.* has 28 batch"),
    "a range too far": ([3, range(20, 29)], ValueError, r"got skip=3, 20-28, expected batch numbers from 0 to 27"),
    "the largest": ([2**63 - 1], ValueError, "in skip, expected batch numbers"),
    "all": ([range(28)], ValueError, r"nothing is left of ArraySource\(.*\): skip= leaves out each of its"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_skipped_is_refused(graph: Any, kind: str) -> None:
    value, error, text = REFUSED[kind]
    with pytest.raises(error, match=rf"^staged\(\):? ?.*{text}"):
        staging.staged(numbered(), skip=value)
    assert graph.get_operations() == []


def test_towers_have_fewer_batches(graph: Any) -> None:
    with pytest.raises(ValueError, match=r"got skip=14, expected .* from 0 to 13: .* 14 batches for each tower"):
        staging.staged(numbered(), skip=[14], devices=TOWERS)
    source = ArraySource(np.arange(3), batch_size=1, epochs=1)
    with pytest.raises(ValueError, match=r"nothing is left of ArraySource\(1 records, .*shard=\(1, 2\)"):
        staging.staged(source.without([1]), devices=TOWERS)
    with pytest.raises(ValueError, match=r"nothing is left of ArraySource\(3 records, .*: skip= or without\(\)"):
        staging.staged(source.without([1, 2]), skip=[0])
    assert graph.get_operations() == []


UNNUMBERED: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator": (lambda: lambda: iter([[1]]), "a GeneratorSource"),
    "a list": (lambda: [np.zeros(1)], "a GeneratorSource"),
    "a stream that resumes": (lambda: GeneratorSource([[1]], resume="skip"), "a GeneratorSource"),
    "a dataset": (lambda: tf.data.Dataset.range(3), r"a tf\.data\.Dataset"),
    "tensors": (lambda: tf.constant(1), "tensors"),
}


@pytest.mark.parametrize("kind", UNNUMBERED)
def test_what_has_no_numbers_is_refused(graph: Any, kind: str) -> None:
    make, text = UNNUMBERED[kind]
    with pytest.raises(TypeError, match=rf"got skip=0 and {text}, which can only be read in order"):
        staging.staged(make(), skip=[0])


def test_a_long_list_is_shortened(graph: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        staging.staged(numbered(), skip=[*range(0, 10**4, 2)])
    assert len(str(caught.value)) < 400 and ", ..., expected" in str(caught.value)


def test_who_leaves_out_nothing_counts_no_more_than_before(graph: Any) -> None:
    from staging_tf1.feed.pipeline import pipelines_of

    staging.staged(numbered(), skip=[])
    staging.staged(Numbers(4), skip=())

    class Empty(Numbers):
        num_batches = 0

    staging.staged(Empty(1))
    assert [pipeline.sinks[0].put.stamp for pipeline in pipelines_of(graph)] == [None] * 3


def test_it_is_not_read() -> None:
    read: list[int] = []

    def note(number: int) -> int:
        read.append(number)
        return int(broken(np.array([number]))[0])

    source = MapSource(range(20), load=note, batch_size=1, epochs=1)
    numbers = [number for number in range(20) if number not in BAD]
    # The spec is read from the first record that `without` does not leave out.
    assert resumed_steps(None, source.without([0, 1]), None, skip=sorted(BAD)) == [[[number]] for number in numbers]
    assert {*read} == {*numbers}
