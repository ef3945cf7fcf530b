"""Where feeding begins: each tower's first batch, and what the position's variables hold after it is found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from slow import examples

import staging_tf1 as staging
from staging_tf1.errors import CheckpointError, ResumeError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.resume import resume_points
from staging_tf1.sources import ArraySource, GeneratorSource, StreamSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

CPU = "/cpu:0"


class Began(NamedTuple):
    """How one feed began.

    Attributes:
      first: the number of each tower's first batch.
      sources: those of the towers.
      held: what the position's variables hold afterwards, by their names; "fingerprint" as a dict.
    """

    first: tuple[int, ...]
    sources: list[Any]
    held: dict[str, Any]


def begin(source: Any, towers: int = 1, held: dict[str, Any] | None = None, resume: str = "exact") -> Began:
    """Begin a feed of `source` in a new session, whose checkpoint has `held`; None is a fresh start."""
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        staging.staged(source, devices=[CPU] * towers, resume=resume)
        (pipeline,) = pipelines_of(graph)
        if held is not None:
            restore(sess, held)
        (points,) = resume_points([pipeline], sess)
        (again,) = resume_points([pipeline], sess)
        first = tuple(number for _, number in points)
        if resume != "restart":
            assert tuple(number for _, number in again) == first, "a session that begins again begins there, too"
        return Began(first, [producer.source for producer, _ in points], held_by(sess))


def variables() -> dict[str, Any]:
    return {variable.op.name.rpartition("/")[2]: variable for variable in tf.global_variables()}


def restore(sess: Any, held: dict[str, Any]) -> None:
    """Give the position's variables these values, as a saver does: whatever their shape is."""
    for name, value in held.items():
        variable = variables()[name]
        if isinstance(value, dict):
            value = json.dumps(value)
        # Of any rank, which the graph cannot check.
        value = tf.placeholder_with_default(tf.constant(value, variable.op.get_attr("dtype")), None)
        sess.run(tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value))


def held_by(sess: Any) -> dict[str, Any]:
    values: dict[str, Any] = sess.run(variables())
    if "position" in values:
        values["position"] = tuple(values["position"].tolist())
        values["fingerprint"] = json.loads(values["fingerprint"])
    return values


def after(source: Any, *positions: int) -> dict[str, Any]:
    """What a checkpoint holds when each tower has consumed so many batches of `source`."""
    return {"position": list(positions), "fingerprint": source.fingerprint()}


def records(count: int = 24, batch_size: int = 4, **other: Any) -> ArraySource:
    return ArraySource(np.arange(count), **{**dict(batch_size=batch_size, shuffle=True, seed=5, epochs=1), **other})


# Random access. test_resume_shards.py has the documented first batches, through sessions.


def test_a_refusal_changes_nothing(graph: Any) -> None:
    staging.staged(records())
    (pipeline,) = pipelines_of(graph)
    held = after(records(seed=4), 3)
    with tf.Session() as sess:
        restore(sess, held)
        with pytest.raises(ResumeError):
            resume_points([pipeline], sess)
        assert held_by(sess) == {**held, "position": (3,)}


def test_another_order_on_more_towers_goes_on_as_far_in_all() -> None:
    held = after(records(seed=4), 3)
    with pytest.raises(ResumeError, match="holds position 3 in another order of batches: seed was 4, is 5; towers was"):
        begin(records(), 2, held)
    began = begin(records(), 2, held, "ignore")
    assert began.first == began.held["position"] == (1, 1)
    assert began.held["fingerprint"] == records().fingerprint()


DAMAGED: dict[str, dict[str, Any]] = {
    "a negative position": {"position": [-1]},
    "no position": {"position": np.zeros([0], np.int64)},
    "a matrix of positions": {"position": [[1, 2]]},
    "one number": {"position": 3},
    "no JSON": {"fingerprint": "{"},
    "no text": {"fingerprint": b"\xff\xfe"},
    "no object": {"fingerprint": "[1]"},
    "a fraction": {"fingerprint": '{"seed": 1.5}'},
    "an object in the object": {"fingerprint": '{"seed": {}}'},
    "brackets without end": {"fingerprint": "[" * 200_000},
    "batches of nothing": {"fingerprint": {**records().fingerprint(), "batch_size": 0}},
    "batches of text": {"fingerprint": {**records().fingerprint(), "batch_size": "four"}},
    "more shards than records": {"fingerprint": {**records().fingerprint(), "shard_count": 2**31}},
    "a shard that is not there": {"fingerprint": {**records().fingerprint(), "shard_index": 1}},
    "a shard before the first": {"fingerprint": {**records().fingerprint(), "shard_index": -1}},
    "no shards": {"fingerprint": {**records().fingerprint(), "shard_count": 0}},
}


@pytest.mark.parametrize("resume", ["exact", "ignore"])
def test_damaged_values_are_named(graph: Any, resume: str) -> None:
    staging.staged(records(), resume=resume)
    (pipeline,) = pipelines_of(graph)
    with tf.Session() as sess:
        for case, damaged in DAMAGED.items():
            restore(sess, {**after(records(), 3), **damaged})
            (name,) = damaged
            with pytest.raises(CheckpointError, match=f"'staged/{name}' in the checkpoint is damaged: got "):
                pytest.fail(f"{case}: begins at {resume_points([pipeline], sess)}")


def test_restart_reads_no_damaged_value(graph: Any) -> None:
    staging.staged(records(), resume="restart")
    (pipeline,) = pipelines_of(graph)
    with tf.Session() as sess:
        for damaged in DAMAGED.values():
            restore(sess, {**after(records(), 3), **damaged})
            assert resume_points([pipeline], sess) == [[(pipeline.producers[0], 0)]]
            assert held_by(sess) == {**after(records(), 0), "position": (0,)}


# A seed that the source drew.


def test_a_drawn_seed_is_its_own_where_nothing_was_consumed() -> None:
    drawn = records(seed=None)
    began = begin(drawn, 1, after(records(), 0))
    assert began.held["fingerprint"]["seed"] == drawn.seed and began.sources[0].seed == drawn.seed


def test_a_drawn_seed_is_compared_where_the_rest_differs() -> None:
    drawn = records(20, seed=None)
    with pytest.raises(ResumeError, match=r"num_records was 24, is 20. "):
        begin(drawn, 1, after(records(), 3))
    began = begin(drawn, 1, after(records(), 3), "ignore")
    assert began.first == (3,) and began.held["fingerprint"] == records(20).fingerprint()


@pytest.mark.parametrize("seed", [2**63, True])
def test_a_damaged_seed_is_named(seed: int) -> None:
    held = after(records(), 3)
    held["fingerprint"]["seed"] = seed
    with pytest.raises(CheckpointError, match="'staged/fingerprint' in the checkpoint is damaged"):
        begin(records(seed=None), 1, held)


# Streams.


def numbers() -> GeneratorSource:
    return GeneratorSource(lambda: (np.array([n]) for n in range(24)), resume="skip")


def test_a_stream_without_a_position_begins_anew() -> None:
    began = begin(GeneratorSource(lambda: (np.array([n]) for n in range(24))), 2)
    assert began.first == (0, 0) and began.held == {}


class Remembers(StreamSource):
    """A stream that keeps its state, and notes which ones it gets back."""

    can_resume = keeps_state = True
    spec = numbers().resolve_spec()

    def __init__(self) -> None:
        self.restored: list[tuple[int, bytes]] = []

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        return (np.array([n]) for n in range(start, 24))

    def state(self, position: int) -> bytes:
        return b"behind:%d" % position

    def restore(self, position: int, state: bytes) -> None:
        self.restored.append((position, state))


@pytest.mark.parametrize(
    ("position", "label", "resume", "restored"),
    [
        (3, b"3:behind:3", "exact", b"behind:3"),
        (3, b"3:", "exact", b""),
        (3, b"2:behind:2", "exact", None),
        (3, b"", "exact", None),
        (3, b"\xff no label", "exact", None),
        (0, b"0:behind:0", "exact", None),
        (3, b"3:behind:3", "ignore", None),
        (3, b"3:behind:3", "restart", None),
    ],
)
def test_a_stream_gets_the_state_back_that_belongs_to_its_position(
    position: int, label: bytes, resume: str, restored: bytes | None
) -> None:
    source = Remembers()
    held = {"position": [position], "fingerprint": {"source": "Remembers", "dealt": "batches"}, "state": label}
    began = begin(source, 1, held, resume)
    assert began.first == ((0,) if resume == "restart" else (position,))
    assert set(source.restored) == (set() if restored is None else {(position, restored)})
    assert began.held["state"] == (b"" if resume == "restart" else label)


# Several feeds of a session.


def test_each_of_several_feeds_has_a_position_of_its_own(graph: Any) -> None:
    staging.staged(records(), name="restored")
    staging.staged(records(), name="carried", devices=[CPU] * 2)
    staging.staged(records(), name="new")
    staging.staged(GeneratorSource(lambda: iter([np.zeros(1)])), name="without")
    positions = {
        name: variable for variable in tf.global_variables() if (name := variable.op.name).endswith("/position")
    }
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for name in ("restored/position", "carried/position"):
            sess.run(tf.raw_ops.AssignVariableOp(resource=positions[name].handle, value=tf.constant([2], tf.int64)))
        points = resume_points(pipelines_of(graph), sess)
        assert [[number for _, number in each] for each in points] == [[2], [1, 1], [0], [0]]
        assert [held.tolist() for held in sess.run(list(positions.values()))] == [[2], [1, 1], [0]]


# All of it at random.


class Deal(NamedTuple):
    batch_size: int
    towers: int


@st.composite
def runs(draw: Any) -> tuple[dict[str, Any], Deal, list[int], Deal]:
    count = draw(st.integers(1, 16))
    order = dict(count=count, epochs=draw(st.integers(1, 2)), across_epochs=draw(st.booleans()))
    before, now = (Deal(draw(st.integers(1, 6)), draw(st.integers(1, min(3, count)))) for _ in range(2))
    source = records(batch_size=before.batch_size, **order)
    most = [source.shard(tower, before.towers).num_batches for tower in range(before.towers)]
    consumed = [draw(st.integers(0, each)) for each in most]
    if draw(st.booleans()):
        consumed = [min(consumed)] * before.towers
    return order, before, consumed, now


def of(sources: Sequence[Any], spans: Sequence[range]) -> Counter[int]:
    """How often each record comes in those batches."""
    return Counter(record for source, span in zip(sources, spans) for k in span for record in source.batch(k).tolist())


@settings(max_examples=examples(40))
@given(runs(), st.sampled_from(["exact", "ignore"]))
def test_nothing_is_left_out_and_exact_repeats_nothing(
    case: tuple[dict[str, Any], Deal, list[int], Deal], resume: str
) -> None:
    order, before, consumed, now = case
    source, present = (records(batch_size=each.batch_size, **order) for each in (before, now))
    whole = Counter(dict.fromkeys(range(order["count"]), order["epochs"]))
    shards = [source.shard(tower, before.towers) for tower in range(before.towers)]
    had = of(shards, [range(upto) for upto in consumed])
    held = after(source, *consumed)

    def to_come(began: Began) -> Counter[int]:
        return of(began.sources, [range(k, each.num_batches) for k, each in zip(began.first, began.sources)])

    try:
        began = begin(present, now.towers, held, resume)
    except ResumeError:
        assert resume == "exact"
        ignoring = begin(present, now.towers, held, "ignore")
        assert had + to_come(ignoring) > whole, "refused because something comes twice, and nothing is left out"
    else:
        assert had + to_come(began) == whole if resume == "exact" else had + to_come(began) >= whole
