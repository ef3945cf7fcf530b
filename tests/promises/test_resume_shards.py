"""A run resumes with other towers, other shards or another batch size, at exactly the documented cost."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from resuming import plain, resumed_steps

import staging_tf1 as staging
from staging_tf1.errors import ResumeError
from staging_tf1.feed.pipeline import Producer
from staging_tf1.feed.resume import _Before
from staging_tf1.graph.position import TowerRange
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

CPU = "/cpu:0"
# The hook saves at the start and at the end of each session, but not in between. The graph as text takes long to write.
AT_THE_END: dict[str, Any] = dict(save_checkpoint_steps=1000, log_step_count_steps=0, save_graph_def=False)


def records(count: int, batch_size: int, **other: Any) -> ArraySource:
    return ArraySource(np.arange(count), **{**dict(batch_size=batch_size, shuffle=True, seed=5, epochs=1), **other})


def numbers(count: int) -> GeneratorSource:
    return GeneratorSource(lambda: (np.array([n]) for n in range(count)), resume="skip")


def dataset(count: int) -> Any:
    return lambda: tf.data.Dataset.range(count).batch(1)


def part(folder: Any, values: Any, towers: int, steps: int | None, **options: Any) -> list[int]:
    """Return the records of `steps` common steps, or of all, in a session that restores the checkpoint in `folder`."""
    got = resumed_steps(folder, values, steps, devices=[CPU] * towers, **options)
    return [record for step in got for batch in step for record in batch]


WAYS: dict[str, dict[str, Any]] = {
    "one thread": dict(),
    "threads": dict(num_threads=3, capacity=5),
    "lockstep": dict(lockstep=True),
}


# Both are in the other tests of the file.
@pytest.mark.slow_cases("one thread|lockstep")
@pytest.mark.parametrize("way", WAYS)
def test_records_come_exactly_once_over_2_1_4_and_2_towers(tmp_path: Any, way: str) -> None:
    got: list[int] = []
    for towers, steps in ((2, 3), (1, 2), (4, 1), (2, 3), (1, None)):  # 24, 32, 48 of the first 48, and 72 records
        got += part(tmp_path, records(48, 4, epochs=2), towers, steps, **WAYS[way])
        whole = [record for k in range(24) for record in records(48, 4, epochs=2).batch(k).tolist()]
        assert Counter(got) == Counter(whole[: len(got)]), "what was consumed is the beginning of the common order"
    assert len(got) == 96


def test_partial_batches_and_the_end_of_an_epoch_are_counted(tmp_path: Any) -> None:
    # Shards of 12 and of 11 records: 3 batches each per epoch; then 6 of one tower.
    got = part(tmp_path, records(23, 4, epochs=2), 2, 4)
    got += part(tmp_path, records(23, 4, epochs=2), 1, None)
    assert Counter(got) == Counter(2 * list(range(23)))


REFUSED = (
    "'staged': the checkpoint holds position 3 in another order of batches: towers was 1, is 2. 12 records had been "
    "consumed: continuing at batch 1 repeats 4 and skips none. Give staged() the same source and devices as before, "
    "or resume='ignore' to continue at batch 1 anyway, or resume='restart' to begin with the first batch."
)


# Both are in the other tests of the file.
@pytest.mark.slow_cases("one thread|threads")
@pytest.mark.parametrize("way", WAYS)
def test_records_that_would_come_twice_are_counted_and_refused(tmp_path: Any, way: str) -> None:
    before = part(tmp_path, records(40, 4), 1, 3)
    with pytest.raises(ResumeError) as caught:
        part(tmp_path, records(40, 4), 2, 1, **WAYS[way])
    assert str(caught.value) == REFUSED
    after = part(tmp_path, records(40, 4), 2, None, resume="ignore", **WAYS[way])
    twice = [record for record, count in Counter(before + after).items() if count > 1]
    assert len(twice) == 4 and set(before + after) == set(range(40))
    assert len(before + after) == 44, "as many as were stated, and none of them three times"


def test_more_epochs_follow_the_partial_batch_at_the_end_of_those_before(tmp_path: Any) -> None:
    # The batches 4, 4 and 2 of one epoch are the first of 4, 4, 4, 4 and 4 of two.
    def crossing(epochs: int) -> ArraySource:
        return records(10, 4, epochs=epochs, across_epochs=True)

    for steps in (2, None):
        folder = tmp_path / str(steps)
        got = part(folder, crossing(1), 1, steps)
        if steps is None:
            with pytest.raises(ResumeError) as caught:
                part(folder, crossing(2), 1, None)
            said = "epochs was 1, is 2. 10 records had been consumed: continuing at batch 2 repeats 2 and skips none."
            assert said in str(caught.value)
        got += part(folder, crossing(2), 1, None, resume="exact" if steps else "ignore")
        repeated = Counter([] if steps else crossing(1).batch(2).tolist())
        assert Counter(got) == Counter(2 * [*range(10)]) + repeated


@pytest.mark.parametrize("positions", [(1, 3), (4, 0), (2, 5, 3), (1, 1, 2, 1)])
def test_towers_that_stopped_at_different_batches_resume_on_as_many(
    positions: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """As the workers of a cluster do. A naive model says which records are left."""
    number, source = len(positions), records(60, 2)
    fingerprint = source.fingerprint()
    before = _Before("staged", positions, fingerprint)
    for towers in range(1, 7):
        tower_range = TowerRange(0, 1, towers)
        producer = Producer("staged", source, None, 1)
        taken = [
            {record for k in range(position) for record in source.shard(tower, number).batch(k).tolist()}
            for tower, position in enumerate(positions)
        ]
        consumed = set().union(*taken)
        if towers == number:
            assert before.resume((producer,), fingerprint, "exact", tower_range) == positions
            continue
        firsts = before.resume((producer,), fingerprint, "ignore", tower_range)
        left = [
            record
            for tower, first in enumerate(firsts)
            for k in range(first, source.shard(tower, towers).num_batches or 0)
            for record in source.shard(tower, towers).batch(k).tolist()
        ]
        assert consumed.union(left) == set(range(60))
        if consumed.isdisjoint(left):
            assert before.resume((producer,), fingerprint, "exact", tower_range) == firsts
            continue
        with pytest.raises(ResumeError) as caught:
            before.resume((producer,), fingerprint, "exact", tower_range)
        said = (
            f"repeats {len(consumed.intersection(left))} and skips none. The {number} towers (one for each device of "
            f"each worker) had stopped at different batches. Only a run with {number} towers can continue "
            f"exactly. Give staged()"
        )
        assert said in str(caught.value)


def test_what_is_ignored_is_logged_and_what_costs_nothing_too(tmp_path: Any, caplog: Any) -> None:
    part(tmp_path, records(40, 4), 1, 3)
    with caplog.at_level(logging.INFO, logger="absl"):
        part(tmp_path, records(40, 4), 2, 1, resume="ignore")
        part(tmp_path, records(40, 4), 1, 1)
    said = [(entry.levelname, entry.getMessage()) for entry in caplog.records if "another order" in entry.getMessage()]
    stated = REFUSED.split(" Give ")[0]
    assert said == [
        ("WARNING", f"{stated} resume='ignore' continues at batch 1 anyway."),
        (
            "INFO",
            "'staged': the checkpoint holds position 2 in another order of batches: towers was 2, is 1. 16 records had "
            "been consumed: continuing at batch 4 repeats 0 and skips none. Resuming; nothing is repeated or skipped.",
        ),
    ]


def test_it_can_begin_again_on_other_towers(tmp_path: Any) -> None:
    part(tmp_path, records(40, 4), 1, 3)
    assert sorted(part(tmp_path, records(40, 4), 2, None, resume="restart")) == list(range(40))


def test_another_batch_size_goes_on_where_it_fits(tmp_path: Any) -> None:
    got = part(tmp_path, records(40, 4), 1, 3) + part(tmp_path, records(40, 6), 1, None)
    assert sorted(got) == list(range(40))


def test_a_seed_that_was_drawn_is_kept_on_other_towers(tmp_path: Any) -> None:
    got: list[int] = []
    for towers, steps in ((2, 2), (4, 1), (1, None)):
        got += part(tmp_path, records(40, 2, seed=None), towers, steps)
    assert sorted(got) == list(range(40))


def shards(tmp_path: Any, steps: int, before: int, after: int, resume: str) -> list[int]:
    """Return all shards' records: `before` processes with their own checkpoints, then `after` with the first one's."""
    got: list[int] = []
    for index in range(before):
        got += part(tmp_path / f"{index} of {before}", records(24, 2, shard=(index, before)), 1, steps)
    for index in range(after):
        folder = tmp_path / f"{index} of {after}"
        shutil.copytree(tmp_path / f"0 of {before}", folder)
        got += part(folder, records(24, 2, shard=(index, after)), 1, None, resume=resume)
    return got


def test_a_sources_own_shards_go_on_as_another_number(tmp_path: Any) -> None:
    assert sorted(shards(tmp_path, 3, 2, 3, "exact")) == list(range(24))


def test_what_other_own_shards_cost_is_counted_over_all_of_them(tmp_path: Any) -> None:
    part(tmp_path / "saved", records(24, 2, shard=(0, 2)), 1, 2)
    with pytest.raises(ResumeError) as caught:
        part(tmp_path / "saved", records(24, 2, shard=(1, 3)), 1, 1)
    assert (
        "position 2 in another order of batches: shard_count was 2, is 3; shard_index was 0, is 1. 8 records had been "
        "consumed: continuing at batch 1 repeats 2 and skips none, if the other shards had reached the same position."
    ) in str(caught.value)
    got = Counter(shards(tmp_path, 2, 2, 3, "ignore"))
    assert set(got) == set(range(24)) and sum(got.values()) == 24 + 2


def test_the_checkpoint_of_another_shard_is_refused(tmp_path: Any) -> None:
    part(tmp_path, records(24, 2, shard=(0, 2)), 1, 2)
    with pytest.raises(
        ResumeError, match="shard_index was 0, is 1. 8 records had been consumed: continuing at batch 2"
    ):
        part(tmp_path, records(24, 2, shard=(1, 2)), 1, 1)


# Not a dataset with several threads, whose order is undefined.
STREAMS = [
    (numbers, "one thread"),
    (numbers, "threads"),
    (numbers, "lockstep"),
    (dataset, "lockstep"),
    (dataset, "one thread"),
]


# Streams, lockstep and datasets are in the other cases, or in the other tests of the file.
@pytest.mark.slow_cases("numbers-threads|dataset-one thread|dataset-lockstep")
@pytest.mark.parametrize(("make", "way"), STREAMS)
def test_a_stream_that_towers_share_goes_on_with_the_next_batch(tmp_path: Any, make: Any, way: str) -> None:
    got: list[int] = []
    # After 3 batches it is the second tower's turn, after 7 the second of three.
    for towers, steps in ((1, 3), (2, 2), (3, None)):
        got += part(tmp_path, make(64), towers, steps, **WAYS[way])
        assert sorted(got) == list(range(len(got)))
    assert len(got) == 64


def first_alone(folder: Any, values: Any, steps: int, resume: str = "exact") -> list[int]:
    """Return the records of the first of two towers, which takes alone, in lockstep."""
    with tf.Graph().as_default():
        given = values() if callable(values) else values
        x, _ = staging.staged(given, devices=[CPU] * 2, lockstep=True, resume=resume)
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(checkpoint_dir=str(folder), **AT_THE_END) as sess:
            return [sess.run([x, train])[0].tolist()[0] for _ in range(steps)]


@pytest.mark.parametrize("make", [numbers, dataset])
def test_the_tower_whose_turn_it_is_gets_the_next_batch(tmp_path: Any, make: Any) -> None:
    part(tmp_path, make(9), 1, 3)
    assert first_alone(tmp_path, make(9), 2) == [4, 6], "3 is for the second tower"


# Datasets are in the other tests of the file.
@pytest.mark.slow_cases("dataset")
@pytest.mark.parametrize("make", [numbers, dataset])
def test_towers_that_have_not_taken_in_turn_repeat_what_was_ahead(tmp_path: Any, make: Any) -> None:
    assert first_alone(tmp_path, make(9), 3) == [0, 2, 4]
    with pytest.raises(ResumeError) as caught:
        first_alone(tmp_path, make(9), 1)
    assert (
        "holds position 3, 0 in another order of batches: the towers consumed batches out of rotation. 3 batches had "
        "been consumed: continuing at batch 1, 0 repeats 2 and skips none."
    ) in str(caught.value)
    assert first_alone(tmp_path, make(9), 2, "ignore") == [2, 4]


# The saver of a monitored session is sharded.
@pytest.mark.slow_cases("options1")
@pytest.mark.parametrize("options", [dict(), dict(sharded=True)])
def test_every_saver_restores_another_number_of_towers(tmp_path: Any, options: dict[str, Any]) -> None:
    def run(towers: int, count: int) -> list[int]:
        with tf.Graph().as_default():
            tf.train.get_or_create_global_step()
            tf.get_variable("weights", [8, 2], partitioner=tf.fixed_size_partitioner(2), use_resource=True)
            parts = staging.staged(records(24, 2), devices=[CPU] * towers)
            with plain(tmp_path, tf.train.Saver(**options)) as sess:
                return [record for _ in range(count) for batch in sess.run(parts) for record in batch.tolist()]

    got = run(1, 4) + run(4, 1) + run(2, 2)
    assert sorted(got) == list(range(24))


def test_the_checkpoint_holds_one_pair_of_variables(tmp_path: Any) -> None:
    part(tmp_path, records(24, 2), 3, 2)
    saved = dict(tf.train.list_variables(tf.train.latest_checkpoint(str(tmp_path))))
    assert saved == {"global_step": [], "staged/fingerprint": [], "staged/position": [3]}


def test_more_towers_than_records_are_refused(graph: Any) -> None:
    before = len(graph.get_operations())
    with pytest.raises(ValueError) as caught:
        staging.staged(records(3, 1), devices=[CPU] * 5, name="train")
    assert str(caught.value) == (
        "staged(name='train') got 5 devices, but a source of only 3 record(s): 2 tower(s) would get none. Give it at "
        "most 3 device(s)."
    )
    with pytest.raises(ValueError) as caught:
        staging.staged(records(5, 4, drop_remainder=True), devices=[CPU] * 2)
    assert str(caught.value).startswith(
        "staged() got 2 devices, but its source cannot be split into 2 shards: "
        "ArraySource: batch_size=4 is larger than the 3 records of shard 0 of 2,"
    )
    assert len(graph.get_operations()) == before
