"""A stopped run resumes with the next batch, from an ordinary checkpoint, whatever it reads and however that is fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import BrokenDiskError
from resuming import BAD, COUNT, GOOD, TOWERS, Counting, bad_numbers, broken, is_bad, resumed_steps
from slow import some_of

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

RECORDS, BATCH = 23, 4


def source(**other: Any) -> ArraySource:
    arguments = dict(batch_size=BATCH, shuffle=True, seed=3, epochs=3)
    return ArraySource(np.arange(RECORDS), **{**arguments, **other})


def in_shards(towers: int) -> list[list[list[int]]]:
    shards = [source().shard(tower, towers) if towers > 1 else source() for tower in range(towers)]
    return [[shard.batch(k).tolist() for k in range(shard.num_batches or 0)] for shard in shards]


def in_turn(batches: list[Any]) -> Callable[[int], list[Any]]:
    """The towers share the batches, one after the other."""
    return lambda towers: [batches[tower::towers] for tower in range(towers)]


def checked(number: Any) -> Any:
    """A dataset's element of one number, with an op that fails at a bad one."""
    bad = tf.reduce_any(tf.equal(number, tf.constant(sorted(BAD), tf.int64)))
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(bad), ["bad"])]):
        return tf.identity(number)[tf.newaxis]


def copied(batch: Any) -> Any:
    """The same batch, from ops."""
    return tf.nest.map_structure(tf.identity, batch)


def across_epochs(batch: Any, rng: Any) -> Any:
    if batch[0] in (2, 3, 5):
        raise BrokenDiskError(f"no batch {batch[0]}")
    return batch


def upto_bad() -> Iterator[Any]:
    yield from (np.array([n]) for n in range(6))
    raise BrokenDiskError("no batch 6")


class Kind(NamedTuple):
    """What is read, anew in each part of a run, and what the towers get of it."""

    make: Callable[[], Any]
    # The steps of each part; None is up to the end.
    parts: tuple[int | None, ...]
    # For a number of towers, the batches of each.
    wanted: Callable[[int], list[list[Any]]]
    skips: Any = ()


ONES = [[number] for number in GOOD]
KINDS = {
    # Within an epoch, across the end of one, and to the end.
    "records": Kind(source, (2, 5, None), in_shards),
    "dataset": Kind(
        lambda: lambda: tf.data.Dataset.range(11).batch(2), (2, 3, None), in_turn([*np.split(np.arange(10), 5), [10]])
    ),
    "generator": Kind(
        lambda: GeneratorSource(lambda: (np.array([n]) for n in range(10)), resume="skip"),
        (4, None),
        in_turn([[n] for n in range(10)]),
    ),
    "stream with a state": Kind(Counting, (7, 5, 1, None), in_turn([[n] for n in range(COUNT)])),
    "bad batches": Kind(
        bad_numbers,
        (1, 2, None),
        lambda towers: [[[n] for n in GOOD if n % towers == tower] for tower in range(towers)],
        BrokenDiskError,
    ),
    "bad batches across epochs": Kind(
        lambda: ArraySource(np.arange(6), batch_size=1, epochs=3, transform=across_epochs),
        (2, 1, 3, None),
        in_turn([[0], [1], [4]] * 3),
        BrokenDiskError,
    ),
    "stream that raises": Kind(lambda: Counting(broken), (1, 3, None), in_turn(ONES), (BrokenDiskError, SpecError)),
    "stream with misfits": Kind(
        lambda: Counting(lambda batch: batch.astype(np.float64) if is_bad(batch) else batch),
        (1, 3, None),
        in_turn(ONES),
        (BrokenDiskError, SpecError),
    ),
    "generator that raises at its end": Kind(
        lambda: GeneratorSource(upto_bad, resume="skip"),
        (1, 2, None),
        in_turn([[n] for n in range(6)]),
        BrokenDiskError,
    ),
    "dataset with bad elements": Kind(
        lambda: lambda: tf.data.Dataset.range(COUNT).map(checked),
        (2, 2, None),
        in_turn(ONES),
        tf.errors.InvalidArgumentError,
    ),
}
WAYS: dict[str, dict[str, Any]] = {
    "one thread": dict(),
    "threads": dict(num_threads=4, capacity=6),
    "map_fn": dict(map_fn=copied, num_threads=4, capacity=6),
    "lockstep": dict(lockstep=True),
    "towers": dict(devices=TOWERS),
    "towers, threads": dict(devices=TOWERS, num_threads=4, capacity=3),
    "towers in lockstep": dict(devices=TOWERS, lockstep=True),
}
# Several threads read a dataset in no order. The shards of the few records have unequally many good ones. Of a stream
# that towers share, a run repeats at most as many batches as were skipped.
UNTRIED = {
    *product([kind for kind in KINDS if "dataset" in kind], ["threads", "map_fn", "towers, threads"]),
    *product(
        ["bad batches across epochs", "stream that raises", "stream with misfits"],
        [way for way in WAYS if "towers" in way],
    ),
}


@pytest.mark.parametrize(("kind", "way"), some_of([case for case in product(KINDS, WAYS) if case not in UNTRIED]))
def test_the_parts_of_a_run_are_the_whole(tmp_path: Path, kind: str, way: str) -> None:
    make, parts, wanted, skips = KINDS[kind]
    options = dict(WAYS[way], name="train", ignored_exception_types=skips)
    towers = len(options.get("devices", [None]))
    got: list[list[list[int]]] = [[] for _ in range(towers)]
    for count in parts:
        values = make()
        steps = resumed_steps(tmp_path, values, count, **options)
        if isinstance(values, Counting):
            # Towers read up to their place in the rotation.
            first = got[0][-1][0] + 1 if got[0] and towers == 1 else 0
            assert values.read == sorted(values.read) and values.read[0] == first, "nothing is read again"
        for tower, more in zip(got, zip(*steps)):
            tower += more
        if kind == "bad batches":
            # Behind the last good batch. Bad ones at the end are followed by no good one, and are skipped again.
            position = tf.train.load_checkpoint(str(tmp_path)).get_tensor("train/position")
            assert position.tolist() == [tower[-1][0] // towers + 1 for tower in got]
    assert got == [[list(batch) for batch in tower] for tower in wanted(towers)]
    if kind == "records":
        assert len({tuple(batch) for tower in got for batch in tower}) == sum(map(len, got)) == 18
    assert resumed_steps(tmp_path, make(), None, **options) == [], "nothing is left"


@pytest.mark.parametrize("make", ["staged", "CustomRunner", "CustomRunner of arrays", "restart"])
def test_what_begins_anew_says_so(graph: Any, tmp_path: Path, caplog: Any, make: str) -> None:
    def batches() -> Iterator[Any]:
        return iter([np.array([number]) for number in range(5)])

    reason = "a CustomRunner has no position. Use staged() with a random-access source to resume"
    if make == "CustomRunner of arrays":
        batch = staging.staged(staging.CustomRunner(ArraySource(np.arange(5), batch_size=1), queue="fifo").get_inputs())
    elif make == "CustomRunner":
        batch = staging.CustomRunner(batches, queue="fifo").get_inputs()
    else:
        reason = "its generator has no position. Use GeneratorSource(..., resume='skip') or a random-access source to"
        batch = staging.staged(batches, resume="restart" if make == "restart" else "exact")
    step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    for begins_anew in (False, True):
        caplog.clear()
        with staging.StagingSession(checkpoint_dir=str(tmp_path)) as sess:
            assert sess.run([batch, step])[0].tolist() == [0]
        said = [record.getMessage() for record in caplog.records if "begins at its first batch" in record.getMessage()]
        assert len(said) == (begins_anew and make != "restart") and all(reason in line for line in said)
