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


# Random access: (the source before, what its towers have consumed), (the source now, towers) -> the first batches.
# test_resume_shards.py has more, through sessions.

GOES_ON: dict[str, tuple[tuple[Any, list[int]], tuple[Any, int], tuple[int, ...]]] = {
    "same source, nothing left": ((records(), [6]), (records(), 1), (6,)),
    "same towers": ((records(), [2, 2]), (records(), 2), (2, 2)),
    "same towers, consumed unevenly": ((records(), [3, 1]), (records(), 2), (3, 1)),
    "same shard": ((records(shard=(1, 2)), [2]), (records(shard=(1, 2)), 1), (2,)),
    "nothing consumed of another order": ((records(seed=4), [0]), (records(), 1), (0,)),
    "nothing consumed by other towers": ((records(), [0, 0, 0]), (records(), 2), (0, 0)),
    "smaller batches": ((records(), [3]), (records(batch_size=3), 1), (4,)),
    "more towers": ((records(), [4]), (records(), 2), (2, 2)),
    "other towers and batches": ((records(), [1, 1, 1]), (records(batch_size=2), 2), (3, 3)),
    "other towers, nothing left": ((records(), [6]), (records(), 4), (2, 2, 2, 2)),
}


@pytest.mark.parametrize("case", GOES_ON)
def test_it_goes_on_with_the_next_batch(case: str) -> None:
    (source, positions), (present, towers), first = GOES_ON[case]
    began = begin(present, towers, after(source, *positions))
    assert began.first == began.held["position"] == first
    assert began.held["fingerprint"] == present.fingerprint()


# As above, with what the refusal says of the difference, and of the cost where it is known.
REFUSED: dict[str, tuple[tuple[Any, list[int]], tuple[Any, int], tuple[int, ...], str]] = {
    "fewer towers, consumed unevenly": ((records(), [3, 1]), (records(), 1), (2,), "towers was 2, .* repeats 8 "),
    "another shard": ((records(shard=(0, 2)), [2]), (records(shard=(1, 2)), 1), (2,), "shard_index was 0, is 1. "),
    "another seed and other towers": ((records(seed=4), [3]), (records(), 2), (1, 1), "seed was 4, is 5; towers was "),
    "other records": ((records(20), [3]), (records(), 1), (3,), "num_records was 20, is 24. .* cannot be mapped"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_repeat_records_is_refused_or_ignored(case: str) -> None:
    (source, positions), (present, towers), first, said = REFUSED[case]
    held = after(source, *positions)
    with pytest.raises(ResumeError, match=f"holds position .* in another order of batches: {said}"):
        begin(present, towers, held)
    began = begin(present, towers, held, "ignore")
    assert began.first == began.held["position"] == first
    assert began.held["fingerprint"] == present.fingerprint()


def test_a_refusal_changes_nothing(graph: Any) -> None:
    staging.staged(records())
    (pipeline,) = pipelines_of(graph)
    held = after(records(seed=4), 3)
    with tf.Session() as sess:
        restore(sess, held)
        with pytest.raises(ResumeError):
            resume_points([pipeline], sess)
        assert held_by(sess) == {**held, "position": (3,)}


@pytest.mark.parametrize("towers", [1, 3])
def test_a_fresh_start_begins_at_the_first_batch(towers: int) -> None:
    began = begin(records(), towers)
    assert began.first == began.held["position"] == (0,) * towers
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


@pytest.mark.parametrize("towers", [1, 2])
def test_restart_forgets_the_position(towers: int) -> None:
    for source in (records(), records(seed=4)):
        began = begin(records(), towers, after(source, 3), "restart")
        assert began.first == began.held["position"] == (0,) * towers
        assert began.held["fingerprint"] == records().fingerprint()


# A seed that the source drew.


@pytest.mark.parametrize("towers", [1, 2, 3])
def test_a_drawn_seed_is_that_of_the_checkpoint(towers: int) -> None:
    before, drawn = records(batch_size=2), records(batch_size=2, seed=None)
    began = begin(drawn, towers, after(before, 6))
    assert began.first == (6 // towers,) * towers and began.held["fingerprint"] == before.fingerprint()
    for tower, source in enumerate(began.sources):
        shard = before.shard(tower, towers)
        assert [source.batch(k).tolist() for k in range(4)] == [shard.batch(k).tolist() for k in range(4)]


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


BY_BATCHES = {"source": "GeneratorSource", "dealt": "batches"}
# What the towers have consumed, how many there are now -> their first batches; None is a refusal.
IN_ROTATION: list[tuple[list[int], int, tuple[int, ...] | None, tuple[int, ...]]] = [
    ([3], 1, (3,), (3,)),
    ([2, 2], 2, (2, 2), (2, 2)),
    ([2, 1], 2, (2, 1), (2, 1)),
    ([3], 2, (2, 1), (2, 1)),
    ([2, 1], 1, (3,), (3,)),
    ([2, 2, 1], 2, (3, 2), (3, 2)),
    ([3, 0], 2, None, (1, 0)),
    ([0, 2], 2, None, (0, 0)),
    ([3, 0], 1, None, (1,)),
]


@pytest.mark.parametrize(("positions", "towers", "exact", "ignore"), IN_ROTATION)
def test_a_stream_that_towers_share_goes_on_behind_the_first_gap(
    positions: list[int], towers: int, exact: tuple[int, ...] | None, ignore: tuple[int, ...]
) -> None:
    held = {"position": positions, "fingerprint": BY_BATCHES}
    if exact is None:
        with pytest.raises(ResumeError, match="repeats [1-9]"):
            begin(numbers(), towers, held)
    else:
        assert begin(numbers(), towers, held).first == exact
    began = begin(numbers(), towers, held, "ignore")
    assert began.first == began.held["position"] == ignore


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
    def mine(name: str) -> dict[str, Any]:
        return {v.op.name.rpartition("/")[2]: v for v in tf.global_variables() if v.op.name.startswith(f"{name}/")}

    staging.staged(records(), name="restored")
    staging.staged(records(), name="carried", devices=[CPU] * 2)
    staging.staged(records(), name="new")
    staging.staged(GeneratorSource(lambda: iter([np.zeros(1)])), name="without")
    pipelines = pipelines_of(graph)
    with tf.Session() as sess:
        sess.run([variable.initializer for name in ("restored", "carried") for variable in mine(name).values()])
        for name in ("restored", "carried"):
            sess.run(
                tf.raw_ops.AssignVariableOp(resource=mine(name)["position"].handle, value=tf.constant([2], tf.int64))
            )
        points = resume_points(pipelines, sess)
        assert [[number for _, number in each] for each in points] == [[2], [1, 1], [0], [0]]
        held = [sess.run(mine(name)["position"]).tolist() for name in ("restored", "carried", "new")]
        assert held == [[2], [1, 1], [0]]


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
