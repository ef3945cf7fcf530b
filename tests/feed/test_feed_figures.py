"""What is counted beside the feeding: skipped batches, how long each state lasted, the bytes held, the verdict."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given

import staging_tf1 as staging
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.source_errors import SkipCounter, SkipRule, skip_rule
from staging_tf1.feed.threads import PUTTING, WAITING_FOR_SOURCE, ThreadState
from staging_tf1.sources import ArraySource, GeneratorSource
from staging_tf1.spec import ArraySpec
from staging_tf1.spec.conform import Conformer
from staging_tf1.watch.stats import _kind, bottleneck, full_bytes

LIMIT_SECS = 200.0

# Bad batches that are skipped.


@pytest.mark.parametrize("most", [0, 1, 3])
def test_one_bad_batch_too_many_is_raised(most: int, caplog: Any) -> None:
    skips, last = SkipCounter("train", SkipRule((KeyError,), most)), KeyError("the last")
    with caplog.at_level(logging.WARNING, logger="absl"):
        for number in range(most):
            skips.skip(KeyError(number))
        for _ in range(2):
            with pytest.raises(KeyError) as caught:
                skips.skip(last)
            assert caught.value is last
    assert skips.count == most
    said = [entry.getMessage() for entry in caplog.records]
    assert len(said) == most and all("'train'" in each and "KeyError" in each for each in said)


def test_without_a_limit_all_are_skipped() -> None:
    skips = SkipCounter("train", SkipRule((KeyError,)))
    for _ in range(100):
        skips.skip(KeyError())
    assert skips.count == 100 and skips.types == (KeyError,)


def test_an_exception_whose_text_raises_is_skipped_too() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    skips = SkipCounter("train", SkipRule((Mute,)))
    skips.skip(Mute())
    assert skips.count == 1


@pytest.mark.parametrize("most", [None, 100])
def test_threads_that_skip_at_once_are_all_counted(most: int | None) -> None:
    skips, begin, raised = SkipCounter("train", SkipRule((KeyError,), most)), threading.Barrier(4), []

    def skip() -> None:
        begin.wait(LIMIT_SECS)
        for number in range(50):
            try:
                skips.skip(KeyError(number))
            except KeyError as error:
                raised.append(error)

    threads = [threading.Thread(target=skip) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECS)
    assert skips.count == (200 if most is None else most) and skips.count + len(raised) == 200


def test_exceptions_may_be_given_one_or_many() -> None:
    many: list[Any] = [KeyError, (KeyError,), [KeyError], {KeyError}, frozenset([KeyError])]
    for types in many:
        assert skip_rule(types, 3, "staged()") == SkipRule((KeyError,), 3)
    assert skip_rule((), None, "staged()") == SkipRule()
    for types in (BaseException, KeyboardInterrupt, KeyError(), "KeyError", (int,), None):
        with pytest.raises(TypeError, match="ignored_exception_types"):
            skip_rule(types, None, "staged()")


# What a feed thread does, and since when.


def test_a_state_lasts_until_the_next() -> None:
    state = ThreadState("feed:x:0")
    moments = [state.since]
    lasted = []
    for doing in (WAITING_FOR_SOURCE, PUTTING, WAITING_FOR_SOURCE):
        lasted.append(state.now(doing))
        moments.append(state.since)
        assert state.doing == doing
    over = time.perf_counter()
    between = [end - start for start, end in itertools.pairwise(moments)]
    assert between == lasted and min(lasted) >= 0, "no time between two states, and none counted twice"
    assert moments[-1] <= over


def count(state: ThreadState, arrays: list[Any]) -> None:
    """Count a batch as feed threads do."""
    state.count(arrays, Conformer(ArraySpec(None, np.dtype(np.int32))).records(arrays))


@given(st.lists(st.lists(st.sampled_from([(), (0,), (3,), (2, 4)]), min_size=1, max_size=3), max_size=5))
def test_delivered_batches_are_counted(batches: list[list[tuple[int, ...]]]) -> None:
    state = ThreadState("feed:x:0")
    for shapes in batches:
        count(state, [np.zeros(shape, np.int32) for shape in shapes])
    assert state.batches == len(batches)
    assert state.records == sum(shapes[0][0] if shapes[0] else 1 for shapes in batches)
    assert state.bytes == sum(4 * int(np.prod(shape, dtype=int)) for shapes in batches for shape in shapes)


def test_a_batch_without_components_is_one_record() -> None:
    state = ThreadState("feed:x:0")
    count(state, [])
    assert (state.batches, state.records, state.bytes) == (1, 1, 0)


# How much is held.


def held(graph: Any, *delivered: Any) -> int:
    """The bytes of the only area or queue of `graph`, after a thread has delivered these batches."""
    (pipeline,) = pipelines_of(graph)
    state = ThreadState("feed:x:0")
    for arrays in delivered:
        count(state, arrays)
    return full_bytes(pipeline.sinks[0], [state, ThreadState("feed:x:1")])


def source(count: int = 40, **options: Any) -> ArraySource:
    arrays = {"image": np.zeros([count, 8], np.float32), "label": np.zeros(count, np.int64)}
    return ArraySource(arrays, batch_size=4, epochs=1, **options)


def test_known_shapes_tell_without_a_batch(graph: Any) -> None:
    staging.staged(source(), capacity=3)
    assert held(graph) == 3 * 4 * (8 * 4 + 8)


def test_what_is_cast_is_held_as_it_is_staged(graph: Any) -> None:
    staging.staged(source(), capacity=3, cast={"image": tf.float16})
    assert held(graph) == 3 * 4 * (8 * 2 + 8)


@pytest.mark.parametrize("cast", [None, {"image": tf.float16}])
def test_open_shapes_are_told_by_what_was_delivered(graph: Any, cast: Any) -> None:
    staging.staged(source(41), capacity=3, cast=cast)
    assert held(graph) == 0, "nothing is known yet"
    full = [np.zeros([4, 8], np.float32), np.zeros(4, np.int64)]
    assert held(graph, full, full) == 3 * 4 * (8 * (4 if cast is None else 2) + 8)
    half = [array[:2] for array in full]
    assert held(graph, full, half) == 3 * 3 * (8 * (4 if cast is None else 2) + 8), "their mean"


def test_a_queue_of_records_holds_records(graph: Any) -> None:
    staging.CustomRunner(source(), capacity=20, min_after_dequeue=5).get_inputs()
    batch = [np.zeros([4, 8], np.float32), np.zeros(4, np.int64)]
    assert held(graph) == 0 and held(graph, batch, batch) == 20 * (8 * 4 + 8)


def test_each_tower_holds_its_own(graph: Any) -> None:
    staging.staged(source(), devices=["/cpu:0"] * 2, capacity=3)
    (pipeline,) = pipelines_of(graph)
    assert [full_bytes(sink, []) for sink in pipeline.sinks] == [480, 480]


@pytest.mark.parametrize("count", [40, 41], ids=["known", "open"])
@pytest.mark.parametrize("cast", [None, {"number": tf.float32}])
def test_strings_are_no_known_number_of_bytes(graph: Any, count: int, cast: Any) -> None:
    text, number = np.array([b"x" * 1000] * count), np.zeros(count)
    staging.staged(ArraySource({"text": text, "number": number}, batch_size=4, epochs=1), capacity=3, cast=cast)
    batch = [number[:4], text[:4].astype(object)]
    assert held(graph) == 0
    assert held(graph, batch) == 3 * 4 * (1000 + (8 if cast is None else 4))
    short = [number[:4], np.array([b""] * 4, object)]
    assert held(graph, batch, short) == 3 * 4 * (500 + (8 if cast is None else 4)), "their mean"


def test_strings_count_with_their_bytes() -> None:
    state = ThreadState("feed:x:0")
    count(state, [np.array([[b"a", b"bc"], [b"", "\N{SNOWMAN}".encode()]], object), np.zeros(2, np.int32)])
    assert (state.records, state.string_bytes, state.bytes) == (2, 6, 14)
    count(state, [np.array(b"label", object)])
    assert (state.records, state.string_bytes, state.bytes) == (3, 11, 19)


def test_how_a_pipeline_gets_its_batches(graph: Any) -> None:
    staging.staged(source(), name="source")
    staging.staged(GeneratorSource(lambda: iter([np.zeros(1)])), name="stream")
    staging.staged(tf.data.Dataset.range(3), name="graph")
    staging.staged(source(), lockstep=True, name="lockstep")
    kinds = {pipeline.name: _kind(pipeline) for pipeline in pipelines_of(graph)}
    assert kinds == {name: name for name in ("source", "stream", "graph", "lockstep")}


# The verdict.


@given(st.floats(0, 1), st.sampled_from(["source", "stream", "graph", "lockstep"]), st.integers(0, 64))
def test_a_loop_is_bound_by_its_input_where_it_waits_a_tenth_of_its_time(share: float, kind: str, threads: int) -> None:
    said = bottleneck(share, kind, threads)
    assert said.startswith("compute-bound: " if share < 0.1 else "input-bound: ")
    percent = int(said.split("steps waited ")[1].split(" % of the time")[0])
    assert abs(percent - 100 * share) < 0.51 and "{" not in said
