"""What is counted beside the feeding: skipped batches, how long each state lasted, what was delivered."""

from __future__ import annotations

import itertools
import time
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given

import staging_tf1 as staging
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.source_errors import SkipRule, skip_rule
from staging_tf1.feed.threads import PUTTING, WAITING_FOR_SOURCE, ThreadState
from staging_tf1.sources import ArraySource, GeneratorSource
from staging_tf1.spec import ArraySpec
from staging_tf1.spec.conform import Conformer
from staging_tf1.watch.stats import _kind

# Bad batches that are skipped.


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
    moments, lasted = [state.since], []
    for doing in (WAITING_FOR_SOURCE, PUTTING, WAITING_FOR_SOURCE):
        lasted.append(state.now(doing))
        moments.append(state.since)
        assert state.doing == doing
    assert lasted == [end - start for start, end in itertools.pairwise(moments)], "no time is lost or counted twice"
    assert moments == sorted(moments) and moments[-1] <= time.perf_counter()


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


def source(count: int = 40, **options: Any) -> ArraySource:
    arrays = {"image": np.zeros([count, 8], np.float32), "label": np.zeros(count, np.int64)}
    return ArraySource(arrays, batch_size=4, epochs=1, **options)


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
