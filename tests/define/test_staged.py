"""`staged()`: structures, shapes, devices, what a run takes, and rejected calls."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource

Pair = collections.namedtuple("Pair", "x y")


def counter(graph: Any) -> Any:
    """A queue of 0, 1, 2, ..., 9: tensors that end."""
    return staging.CustomRunner(lambda: iter(np.arange(10).reshape(10, 1)), queue="fifo").get_inputs()


@pytest.mark.thinned
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: (x, x + 1),
        lambda x: [x, {"a": x, "b": (x, x)}],
        lambda x: Pair(x, {"z": x}),
        lambda x: tf.SparseTensor(tf.zeros([1, 1], tf.int64), x, [4]),
        lambda x: tf.RaggedTensor.from_row_lengths(x, [1]),
        lambda x: {"s": tf.as_string(x), "bool": x > 3},
    ],
    ids=["tensor", "tuple", "list", "namedtuple", "sparse", "ragged", "strings"],
)
@pytest.mark.parametrize("lockstep", [False, True])
def test_the_structure_and_the_shapes_are_kept(graph: Any, make: Any, lockstep: bool) -> None:
    values = make(tf.ensure_shape(counter(graph), [1]))
    staged = staging.staged(values, lockstep=lockstep)
    tf.nest.assert_same_structure(values, staged, expand_composites=True)
    flat, flat_staged = (tf.nest.flatten(each, expand_composites=True) for each in (values, staged))
    assert [t.shape.as_list() for t in flat] == [t.shape.as_list() for t in flat_staged]
    assert [t.dtype for t in flat] == [t.dtype for t in flat_staged]
    with staging.StagingSession() as sess:
        seen = [sess.run(staged) for _ in range(3)]
    assert len({str(each) for each in seen}) == 3, "each step has another batch"


@pytest.mark.parametrize("lockstep", [False, True])
def test_feeding_a_staged_tensor_takes_nothing(graph: Any, lockstep: bool) -> None:
    x = staging.staged(ArraySource(np.arange(3), batch_size=1, epochs=1), lockstep=lockstep)
    double = x * 2
    with staging.StagingSession() as sess:
        for _ in range(5):
            assert sess.run(double, {x: [21]}).tolist() == [42]
        call = sess.make_callable(double, [x])
        assert call([50]).tolist() == [100]
        assert [sess.run(double).tolist() for _ in range(3)] == [[0], [2], [4]]


def test_the_area_is_on_the_device(graph: Any) -> None:
    values = ArraySource(np.arange(4), batch_size=1, epochs=1)
    a, b = staging.staged(values, devices=["/device:CPU:0", "/device:CPU:1"])
    towers = pipelines_of(graph)[0].sinks
    assert [sink.area.device for sink in towers] == ["/device:CPU:0", "/device:CPU:1"]
    assert [x.device for x in (a, b)] == ["/device:CPU:0", "/device:CPU:1"]
    with tf.device("/device:CPU:1"):
        c = staging.staged(ArraySource(np.arange(4), batch_size=1, epochs=1))
    assert c.device == "/device:CPU:1"
    with staging.StagingSession(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        assert [x.tolist() for x in sess.run([a, b, c])] == [[0], [1], [0]]


def test_a_staged_batch_of_a_staged_batch(graph: Any) -> None:
    once = staging.staged(ArraySource(np.arange(5), batch_size=2, epochs=1))
    twice = staging.staged(once * 10, capacity=1)
    with staging.StagingSession() as sess:
        assert [sess.run(twice).tolist() for _ in range(3)] == [[0, 10], [20, 30], [40]]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(twice)


@pytest.mark.usefixtures("kept_in")
def test_the_area_never_holds_more_than_its_capacity(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(200), batch_size=1, epochs=1), capacity=3, num_threads=4)
    size = pipelines_of(graph)[0].sinks[0].repair.held
    with staging.StagingSession() as sess:
        held = [int(sess.run([x, size])[1]) for _ in range(200)]
    assert max(held) <= 3


@pytest.mark.parametrize(
    ("options", "has_area"),
    [
        ({}, False),
        ({"device": "/cpu:0"}, False),
        ({"lockstep": True}, False),
        ({"device": "/gpu:0"}, True),
        ({"devices": ["/cpu:0", "/cpu:0"]}, True),
    ],
    ids=str,
)
def test_where_there_are_only_cpus_a_queue_holds_the_batches_of_one_tower(
    graph: Any, options: dict[str, Any], has_area: bool
) -> None:
    staging.staged(ArraySource(np.arange(8), batch_size=2), **options)
    assert [kind in {op.type for op in graph.get_operations()} for kind in ("Stage", "Unstage")] == [has_area] * 2


# Rejected calls and their messages. A rejected call adds no op.

# What each argument alone may be is in `test_arguments.py`.
REFUSED = [
    (dict(capacity=0), "staged() got capacity=0, expected a whole number from 1 to 1048576 (elements)."),
    (dict(lockstep=True, nice=5), "staged() got nice=5 with lockstep=True, which has no thread. Drop one."),
    (
        dict(lockstep=True, num_threads=2),
        "staged() got num_threads=2 with lockstep=True, which has no thread. Drop one.",
    ),
    (dict(device="nowhere:x:y"), "staged() got device='nowhere:x:y', expected a name such as '/device:GPU:0'."),
    (dict(devices="/cpu:0"), "staged() got devices='/cpu:0', expected a list with a device for each tower."),
    (
        dict(device="/cpu:0", devices=["/cpu:0"]),
        "staged() got both device='/cpu:0' and devices=['/cpu:0']. Pass one; devices= makes towers.",
    ),
    (
        dict(memory_limit=100),
        "staged(): an element has 800 bytes, expected at most memory_limit=100 bytes. Use smaller batches, or no "
        "memory_limit.",
    ),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED, ids=lambda x: str(x)[:40])
def test_a_bad_argument_is_named(graph: Any, arguments: dict[str, Any], text: str) -> None:
    source = ArraySource(np.zeros((10, 100)), batch_size=1)
    before = len(graph.get_operations())
    with pytest.raises((ValueError, TypeError)) as caught:
        staging.staged(source, **arguments)
    assert str(caught.value) == text
    assert len(graph.get_operations()) == before


def test_arrays_want_a_source(graph: Any) -> None:
    with pytest.raises(TypeError) as caught:
        staging.staged({"x": np.zeros(3)})
    assert str(caught.value) == (
        "staged() got a dict without tensors as values. Wrap arrays in a source: "
        "staging.sources.ArraySource(arrays, batch_size=...)."
    )


def test_a_tensor_of_another_graph_is_named(graph: Any) -> None:
    with tf.Graph().as_default():
        alien = tf.zeros([2], name="alien")
    with pytest.raises(SpecError) as caught:
        staging.staged({"x": alien})
    assert str(caught.value) == (
        "staged() got tensor 'alien:0', which belongs to a different graph than the default one. Build both within the "
        "same `with graph.as_default():`."
    )


def test_none_as_a_component_is_named(graph: Any) -> None:
    with pytest.raises(TypeError, match=r"staged\(\) got None as component 'b'. Leave it out, or pass a tensor."):
        staging.staged({"a": tf.zeros([1]), "b": None})


def test_an_unknown_size_wants_no_memory_limit(graph: Any) -> None:
    with pytest.raises(ValueError, match="the size of an element is unknown at build time. Set the shapes"):
        staging.staged(tf.placeholder(tf.float32, [None]), memory_limit=1000)


def test_two_gib_cannot_be_counted(graph: Any) -> None:
    with pytest.raises(ValueError) as caught:
        staging.staged(tf.placeholder(tf.float32, [2**29]), memory_limit=2**40)
    assert str(caught.value) == (
        "staged(): an element has 2147483648 bytes, expected less than 2 GiB. Use smaller batches, or no memory_limit."
    )


def test_tensors_in_lockstep_on_several_devices_are_refused(graph: Any) -> None:
    with pytest.raises(ValueError, match="in one step the tensors have one value, so all towers would get the same"):
        staging.staged(tf.zeros([2]), devices=["/cpu:0", "/cpu:0"], lockstep=True)
