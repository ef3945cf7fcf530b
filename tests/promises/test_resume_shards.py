"""A run resumes in another order of batches (towers, shards, batch size, seed) at exactly the documented cost."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any, NamedTuple

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


def test_records_come_exactly_once_over_2_1_4_and_2_towers(tmp_path: Any) -> None:
    got: list[int] = []
    for towers, steps in ((2, 3), (1, 2), (4, 1), (2, 3), (1, None)):  # 24, 32, 48 of the first 48, and 72 records
        got += part(tmp_path, records(48, 4, epochs=2), towers, steps, num_threads=3, capacity=5)
        whole = [record for k in range(24) for record in records(48, 4, epochs=2).batch(k).tolist()]
        assert Counter(got) == Counter(whole[: len(got)]), "what was consumed is the beginning of the common order"
    assert len(got) == 96


class Change(NamedTuple):
    """A source and its towers, the steps of a first run, what a second run has instead, and where that continues."""

    old: ArraySource
    towers: int
    steps: int
    new: ArraySource
    new_towers: int
    begins: int
    said: str


def crossing(epochs: int) -> ArraySource:
    """The batches 4, 4 and 2 of one epoch; they are the first of 4, 4, 4, 4 and 4 of two."""
    return records(10, 4, epochs=epochs, across_epochs=True)


UNTOLD = "The saved position cannot be mapped to the new order."
OF_ALL = ", if the other shards had reached the same position."
# "repeats 0" is not refused: the second run continues exactly. An empty text: nothing is said.
CHANGES = {
    "seed": Change(records(40, 4), 1, 3, records(40, 4, seed=6), 1, 3, f"seed was 5, is 6. {UNTOLD}"),
    "shuffle": Change(
        *(records(40, 4), 1, 3, records(40, 4, seed=None, shuffle=False), 1, 3),
        f"seed was 5, is -1; shuffle was 1, is 0. {UNTOLD}",
    ),
    "batch size": Change(records(40, 4), 1, 3, records(40, 5), 1, 2, "batch_size was 4, is 5. 12 records, repeats 2"),
    "batch size that fits": Change(
        records(40, 4), 1, 3, records(40, 6), 1, 2, "batch_size was 4, is 6. 12 records, repeats 0"
    ),
    "more towers": Change(records(40, 4), 1, 3, records(40, 4), 2, 1, "towers was 1, is 2. 12 records, repeats 4"),
    "fewer towers": Change(records(40, 4), 2, 2, records(40, 4), 1, 4, "towers was 2, is 1. 16 records, repeats 0"),
    # Shards of 12 and of 11 records have 3 batches each per epoch; then 6 of one tower.
    "fewer towers, in the second epoch": Change(
        *(records(23, 4, epochs=2), 2, 4, records(23, 4, epochs=2), 1, 8), "towers was 2, is 1. 31 records, repeats 0"
    ),
    "more epochs": Change(crossing(1), 1, 2, crossing(2), 1, 2, ""),
    "more epochs after a partial batch": Change(
        crossing(1), 1, 3, crossing(2), 1, 2, "epochs was 1, is 2. 10 records, repeats 2"
    ),
    "another shard": Change(
        *(records(24, 2, shard=(0, 2)), 1, 2, records(24, 2, shard=(1, 2)), 1, 2),
        f"shard_index was 0, is 1. 8 records, repeats 0{OF_ALL}",
    ),
    "more shards": Change(
        *(records(24, 2, shard=(0, 2)), 1, 2, records(24, 2, shard=(1, 3)), 1, 1),
        f"shard_count was 2, is 3; shard_index was 0, is 1. 8 records, repeats 2{OF_ALL}",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_order_continues_where_it_says_or_is_refused(tmp_path: Any, caplog: Any, change: str) -> None:
    old, towers, steps, new, new_towers, begins, said = CHANGES[change]
    told = re.sub(
        r"records, (repeats \d+)", rf"records had been consumed: continuing at batch {begins} \1 and skips none", said
    )
    told = f"'staged': the checkpoint holds position {steps} in another order of batches: {told.removesuffix('.')}."
    exact = said.endswith("repeats 0") or not said
    where = f"batch {begins}" + " of the new order" * (UNTOLD in said)
    before = part(tmp_path, old, towers, steps)
    if not exact:
        with pytest.raises(ResumeError) as caught:
            part(tmp_path, new, new_towers, 1)
        assert str(caught.value) == (
            f"{told} Give staged() the same source and devices as before, or resume='ignore' to continue at {where} "
            f"anyway, or resume='restart' to begin with the first batch."
        )
    with caplog.at_level(logging.INFO, logger="absl"):
        after = part(tmp_path, new, new_towers, None, resume="exact" if exact else "ignore")
    exactly, anyway = "Resuming; nothing is repeated or skipped.", f"resume='ignore' continues at {where} anyway."
    expected = ("INFO", f"{told} {exactly}") if exact else ("WARNING", f"{told} {anyway}")
    lines = [(entry.levelname, entry.getMessage()) for entry in caplog.records]
    assert [line for line in lines if "another order" in line[1]] == [expected] * bool(said)
    parts = [new.shard(tower, new_towers) for tower in range(new_towers)] if new_towers > 1 else [new]
    orders = [[each.batch(k).tolist() for k in range(each.num_batches or 0)] for each in parts]
    assert after == [record for step in zip(*orders, strict=True) for batch in step for record in batch][-len(after) :]
    assert len(after) == sum(len(batch) for order in orders for batch in order[begins:])
    if UNTOLD not in said and OF_ALL not in said:
        whole = Counter(record for order in orders for batch in order for record in batch)
        repeated = Counter(before + after) - whole
        assert sum(repeated.values()) == int((said or "0").split()[-1]) and not whole - Counter(before + after)
    assert part(tmp_path, new, new_towers, 1, resume="restart") == [record for order in orders for record in order[0]]


def test_towers_that_stopped_at_different_batches_resume_exactly_on_as_many() -> None:
    """As the workers of a cluster do. test_reshard.py computes where other numbers of towers go on."""
    source, positions = records(60, 2), (1, 3)
    fingerprint, producer = source.fingerprint(), Producer("staged", source, None, 1)
    before = _Before("staged", positions, fingerprint)
    assert before.resume((producer,), fingerprint, "exact", TowerRange(0, 1, 2)) == positions
    with pytest.raises(ResumeError) as caught:
        before.resume((producer,), fingerprint, "exact", TowerRange(0, 1, 3))
    assert (
        "The 2 towers (one for each device of each worker) had stopped at different batches. Only a run with 2 towers "
        "can continue exactly. Give staged()"
    ) in str(caught.value)


def test_a_seed_that_was_drawn_is_kept_on_other_towers(tmp_path: Any) -> None:
    got: list[int] = []
    for towers, steps in ((2, 2), (4, 1), (1, None)):
        got += part(tmp_path, records(40, 2, seed=None), towers, steps)
    assert sorted(got) == list(range(40))


@pytest.mark.parametrize(("make", "options"), [(numbers, {}), (dataset, {"lockstep": True})])
def test_a_stream_that_towers_share_goes_on_with_the_next_batch(tmp_path: Any, make: Any, options: Any) -> None:
    got: list[int] = []
    # After 3 batches it is the second tower's turn, after 7 the second of three.
    for towers, steps in ((1, 3), (2, 2), (3, None)):
        got += part(tmp_path, make(64), towers, steps, **options)
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


def test_the_tower_whose_turn_it_is_gets_the_next_batch(tmp_path: Any) -> None:
    part(tmp_path, numbers(9), 1, 3)
    assert first_alone(tmp_path, numbers(9), 2) == [4, 6], "3 is for the second tower"


def test_towers_that_have_not_taken_in_turn_repeat_what_was_ahead(tmp_path: Any) -> None:
    assert first_alone(tmp_path, numbers(9), 3) == [0, 2, 4]
    with pytest.raises(ResumeError) as caught:
        first_alone(tmp_path, numbers(9), 1)
    assert (
        "holds position 3, 0 in another order of batches: the towers consumed batches out of rotation. 3 batches had "
        "been consumed: continuing at batch 1, 0 repeats 2 and skips none."
    ) in str(caught.value)
    assert first_alone(tmp_path, numbers(9), 2, "ignore") == [2, 4]


def test_a_plain_saver_restores_another_number_of_towers(tmp_path: Any) -> None:
    """Beside partitioned variables. The saver of a monitored session, as in the other tests, is sharded."""
    got: list[int] = []
    for towers, count in ((1, 4), (4, 1), (2, 2)):
        with tf.Graph().as_default():
            tf.get_variable("weights", [8, 2], partitioner=tf.fixed_size_partitioner(2), use_resource=True)
            parts = staging.staged(records(24, 2), devices=[CPU] * towers)
            with plain(tmp_path) as sess:
                got += [record for _ in range(count) for batch in sess.run(parts) for record in batch.tolist()]
    assert sorted(got) == list(range(24))


def test_more_towers_than_records_are_refused(graph: Any) -> None:
    before = len(graph.get_operations())
    for source, towers, words in (
        (records(3, 1), 5, "5 devices, but a source of only 3 record(s): 2 tower(s) would get none. Give it at most 3"),
        (records(5, 4, drop_remainder=True), 2, "2 devices, but its source cannot be split into 2 shards: ArraySource"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"staged(name='train') got {words}")):
            staging.staged(source, devices=[CPU] * towers, name="train")
    assert len(graph.get_operations()) == before
