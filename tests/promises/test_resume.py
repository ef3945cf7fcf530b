"""A stopped run resumes with the next record, from an ordinary checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from resuming import resumed_steps

import staging_tf1 as staging
from staging_tf1.errors import ResumeError
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

RECORDS, BATCH = 23, 4
UNTOLD = "The saved position cannot be mapped to the new order."


def source(**other: Any) -> ArraySource:
    arguments = dict(batch_size=BATCH, shuffle=True, seed=3, epochs=3)
    return ArraySource(np.arange(RECORDS), **{**arguments, **other})


def steps(folder: Any, values: Any, count: int | None, **staged: Any) -> list[list[int]]:
    """Return up to `count` steps' batches, those of several towers in turn."""
    return [batch for step in resumed_steps(folder, values, count, **staged) for batch in step]


WAYS = {
    "one thread": dict(),
    "threads": dict(num_threads=4, capacity=6),
    "lockstep": dict(lockstep=True),
    "towers": dict(devices=["/cpu:0", "/cpu:0"], num_threads=2, capacity=3),
}


# One thread, where others have several.
@pytest.mark.slow_cases("one thread")
@pytest.mark.parametrize("way", WAYS)
def test_the_parts_of_a_run_are_the_whole(tmp_path: Any, way: str) -> None:
    whole = steps(None, source(), None, **WAYS[way])
    parts: list[list[int]] = []
    for count in (2, 5, None):  # within an epoch, across the end of one, and to the end
        parts += steps(tmp_path / "parts", source(), count, **WAYS[way])
    assert parts == whole
    assert len(whole) in (18, 17, 16) and len({tuple(batch) for batch in whole}) == len(whole)


def test_what_was_read_ahead_does_not_count(tmp_path: Any) -> None:
    first = steps(tmp_path, source(epochs=None), 2, capacity=8, num_threads=4)
    second = steps(tmp_path, source(epochs=None), 2, capacity=8, num_threads=4)
    assert first + second == [source().batch(k).tolist() for k in range(4)]


def test_a_dataset_goes_on_too(tmp_path: Any) -> None:
    got: list[list[int]] = []
    for count in (2, 3, None):
        got += steps(tmp_path, lambda: tf.data.Dataset.range(11).batch(2), count)
    assert got == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]


def test_a_generator_that_may_skip_goes_on(tmp_path: Any) -> None:
    def numbers() -> Any:
        return GeneratorSource(lambda: (np.array([n]) for n in range(9)), resume="skip")

    assert steps(tmp_path, numbers(), 4) + steps(tmp_path, numbers(), None) == [[n] for n in range(9)]


def test_a_seed_that_was_drawn_is_taken_from_the_checkpoint(tmp_path: Any) -> None:
    first = steps(tmp_path, source(seed=None), 5)
    second = steps(tmp_path, source(seed=None), None)
    ids = sorted(record for batch in first + second for record in batch)
    assert ids == sorted(3 * list(range(RECORDS))), "the same order before and after"


@pytest.mark.parametrize(
    ("other", "difference", "cost", "where"),
    [
        (dict(seed=4), "seed was 3, is 4", UNTOLD, "batch 3 of the new order"),
        (dict(shuffle=False, seed=None), "seed was 3, is -1; shuffle was 1, is 0", UNTOLD, "batch 3 of the new order"),
        (
            dict(batch_size=5),
            "batch_size was 4, is 5",
            "12 records had been consumed: continuing at batch 2 repeats 2 and skips none.",
            "batch 2",
        ),
    ],
)
def test_another_order_is_refused_with_both_values(
    tmp_path: Any, other: dict[str, Any], difference: str, cost: str, where: str
) -> None:
    steps(tmp_path, source(), 3)
    with pytest.raises(ResumeError) as caught:
        steps(tmp_path, source(**other), 1)
    assert str(caught.value) == (
        f"'staged': the checkpoint holds position 3 in another order of batches: {difference}. {cost} Give staged() "
        f"the same source and devices as before, or resume='ignore' to continue at {where} anyway, or "
        f"resume='restart' to begin with the first batch."
    )


def test_it_can_be_told_to_go_on_or_to_begin_again(tmp_path: Any) -> None:
    steps(tmp_path, source(), 3)
    assert steps(tmp_path, source(seed=4), 1, resume="ignore") == [source(seed=4).batch(3).tolist()]
    assert steps(tmp_path, source(seed=5), 1, resume="restart") == [source(seed=5).batch(0).tolist()]
    assert steps(tmp_path, source(seed=5), 1) == [source(seed=5).batch(1).tolist()], "and that is saved, too"


def test_another_word_for_resume_is_refused(graph: Any) -> None:
    with pytest.raises(ValueError) as caught:
        staging.staged(source(), resume="yes")
    assert str(caught.value) == "staged() got resume='yes', expected 'exact', 'ignore' or 'restart'."


def test_a_plain_session_and_a_plain_saver_do_it_too(tmp_path: Any) -> None:
    def part(count: int, restore: bool) -> list[list[int]]:
        with tf.Graph().as_default(), tf.Session() as sess:
            x = staging.staged(source())
            saver = tf.train.Saver()
            if restore:
                saver.restore(sess, str(tmp_path / "model"))
            else:
                sess.run(tf.global_variables_initializer())
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            got = [sess.run(x).tolist() for _ in range(count)]
            saver.save(sess, str(tmp_path / "model"))
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=60)
            return got

    assert part(4, False) + part(5, True) == [source().batch(k).tolist() for k in range(9)]
