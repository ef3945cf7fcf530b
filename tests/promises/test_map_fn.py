"""`staged(map_fn=)`: the batches are those of the function, whatever feeds it; what it must not use is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from recorded import variables_in, write_checkpoint
from resuming import TOWERS, Counting, resumed_steps
from slow import some_of
from tensorflow.python.framework import function

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.errors import BuildError, ResumeError, SourceError, SpecError
from staging_tf1.sources import ArraySource, GeneratorSource, MapSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT, BATCH = 22, 4
ORDER: dict[str, Any] = dict(batch_size=BATCH, shuffle=True, seed=5, epochs=2)
NUMBERS = np.arange(COUNT)
IMAGES = np.random.default_rng(0).integers(0, 256, [COUNT, 6, 5, 3]).astype(np.uint8)


def jpegs() -> Any:
    with tf.Graph().as_default(), tf.Session() as sess:
        return np.array(sess.run([tf.io.encode_jpeg(image) for image in IMAGES]), object)


def examples(folder: Path) -> str:
    path = folder / "examples.tfrecord"
    if not path.exists():
        feature = [tf.train.Feature(int64_list=tf.train.Int64List(value=[number, number**2])) for number in NUMBERS]
        each = [tf.train.Example(features=tf.train.Features(feature={"pair": values})) for values in feature]
        sources.write_tfrecords([example.SerializeToString() for example in each], path)
    return str(path)


def noisy(batch: Any, seed: Any) -> Any:
    """A flip, a crop and a cast that depend on the batch's seed."""
    images = tf2.image.stateless_random_flip_left_right(batch["image"], seed)
    images = tf2.image.stateless_random_crop(images, [tf.shape(images)[0], 4, 4, 3], seed)
    # A power of two: TensorFlow may divide or multiply.
    return tf.cast(images, tf.float32) / 256, batch["label"]


def decoded(batch: Any, seed: Any) -> Any:
    images = tf.map_fn(lambda image: tf.io.decode_jpeg(image, channels=3), batch, fn_output_signature=tf.uint8)
    return tf.cast(images, tf.float32) + tf.random.stateless_normal(tf.shape(images), seed)


def parsed(batch: Any, seed: Any) -> Any:
    pairs = tf.io.parse_example(batch, {"pair": tf.io.FixedLenFeature([2], tf.int64)})["pair"]
    return pairs + tf.random.stateless_uniform([2], seed, 0, 1000, tf.int64)


def summed(batch: Any, seed: Any) -> Any:
    return {"sum": tf.reduce_sum(batch["pair"], 1), "seed": seed}


def with_seed(batch: Any, seed: Any) -> Any:
    return batch, tf.as_string(seed)


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[..., Any]]] = {
    "arrays": (lambda folder: ArraySource({"image": IMAGES, "label": NUMBERS}, **ORDER), noisy),
    "strings": (lambda folder: ArraySource(jpegs(), **ORDER), decoded),
    "records": (lambda folder: sources.TFRecordSource(examples(folder), **ORDER), parsed),
    "records with features": (
        lambda folder: sources.TFRecordSource(
            examples(folder), features={"pair": tf.io.FixedLenFeature([2], tf.int64)}, **ORDER
        ),
        summed,
    ),
    "a transform in Python": (
        lambda folder: ArraySource(NUMBERS, transform=lambda x: x**2, **ORDER),
        with_seed,
    ),
    "one by one": (lambda folder: MapSource([np.arange(3) + n for n in range(COUNT)], **ORDER), with_seed),
    "cached": (lambda folder: sources.cached(NUMBERS, folder / "cache", **ORDER), with_seed),
    "a mixture": (
        lambda folder: sources.mix([ArraySource(NUMBERS, **ORDER), ArraySource(-NUMBERS, **ORDER)], [0.7, 0.3], seed=3),
        with_seed,
    ),
    "some of the records": (lambda folder: ArraySource(NUMBERS, **ORDER).skip(3).weighted(NUMBERS[3:]), with_seed),
}
WAYS: dict[str, dict[str, Any]] = {
    "one thread": dict(),
    "threads": dict(num_threads=4, capacity=5),
    "AUTOTUNE": dict(num_threads=staging.AUTOTUNE),
    "processes": dict(num_processes=2),
    "lockstep": dict(lockstep=True),
    "towers": dict(devices=TOWERS, num_threads=2),
    "shared dynamically": dict(share="dynamic", num_threads=2),
}


def applied(source: Any, map_fn: Callable[..., Any]) -> list[Any]:
    """Return what TensorFlow makes of each batch of a source, by itself."""
    made = []
    shard = source.fingerprint()
    with tf.Graph().as_default(), tf.Session() as sess:
        for number in range(source.num_batches):
            batch = tf.nest.map_structure(tf.constant, source.batch(number))
            if source.features is not None:
                batch = tf.io.parse_example(batch, source.features)
            seed = tf.constant([source.seed, number * shard["shard_count"] + shard["shard_index"]], tf.int64)
            made.append(sess.run(map_fn(batch, seed)))
    return made


@pytest.mark.parametrize(("kind", "way"), some_of(list(product(KINDS, WAYS))))
def test_batches_are_those_of_the_function_bit_for_bit_and_after_a_resume(tmp_path: Path, kind: str, way: str) -> None:
    make, map_fn = KINDS[kind]
    towers = len(WAYS[way].get("devices", [None]))
    got: list[list[Any]] = [[] for _ in range(towers)]
    # In the middle, and to the end.
    for count in (2, None):
        with tf.Graph().as_default():
            staged = staging.staged(make(tmp_path), map_fn=map_fn, **WAYS[way])
            parts = staged if towers > 1 else [staged]
            train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            options = dict(save_checkpoint_steps=1000, log_step_count_steps=0, save_graph_def=False)
            with staging.StagingSession(checkpoint_dir=str(tmp_path / "model"), **options) as sess:
                while not sess.should_stop() and count != 0:
                    for tower, batch in zip(got, sess.run([parts, train])[0], strict=True):
                        tower.append(batch)
                    count = None if count is None else count - 1
    whole = make(tmp_path)
    for tower, batches in enumerate(got):
        wanted = applied(whole.shard(tower, towers) if towers > 1 else whole, map_fn)
        assert len(batches) == len(wanted)
        for batch, made in zip(batches, wanted, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, batch, made)


def test_sparse_and_ragged_values_go_in_and_come_out(graph: Any) -> None:
    rows = MapSource([[1, 2], [], [3], [4, 5, 6]], batch_size=2, epochs=1).ragged()
    x = staging.staged(rows, map_fn=lambda batch: {"sparse": (2 * batch).to_sparse(), "ragged": batch + 1})
    with staging.StagingSession() as sess:
        got = [sess.run(x) for _ in range(2)]
    assert [batch["ragged"].to_list() for batch in got] == [[[2, 3], []], [[4], [5, 6, 7]]]
    assert [batch["sparse"].values.tolist() for batch in got] == [[2, 4], [6, 8, 10, 12]]


def test_a_generator_and_a_table(graph: Any) -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [7, 8]), -1)
    source = GeneratorSource(lambda: (np.array([word], object) for word in (b"a", b"c", b"b")))
    x = staging.staged(source, map_fn=table.lookup)
    with staging.StagingSession() as sess:
        got = []
        while not sess.should_stop():
            got += sess.run(x).tolist()
    assert got == [7, -1, 8]


def test_a_stream_with_a_state_resumes_and_its_bad_batches_stay_in_rotation(tmp_path: Path) -> None:
    def odd(batch: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(batch[0] % 5, 1), ["not one of these"])]):
            return 10 * batch

    skipping = dict(map_fn=odd, ignored_exception_types=tf.errors.InvalidArgumentError)
    got = [step[0] for count in (2, None) for step in resumed_steps(tmp_path, Counting(), count, **skipping)]
    assert got == [[10 * number] for number in range(1, 20, 5)]
    towers = resumed_steps(None, Counting(), None, devices=TOWERS, num_threads=2, **skipping)
    assert towers == [[[10], [60]], [[110], [160]]]


def test_the_seed_that_was_drawn_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    def seeds(batch: Any, seed: Any) -> Any:
        return seed

    def source() -> ArraySource:
        return ArraySource(NUMBERS, batch_size=BATCH, shuffle=True)

    steps = [resumed_steps(tmp_path, source(), 3, map_fn=seeds) for _ in range(2)]
    got = [step[0] for part in steps for step in part]
    assert len({seed for seed, _ in got}) == 1 and [number for _, number in got] == [*range(6)]


def seeds_of(batch: Any, seed: Any) -> Any:
    return seed


UNSHUFFLED: dict[str, Callable[..., Any]] = {
    "arrays": partial(ArraySource, NUMBERS, batch_size=2),
    "one by one": partial(MapSource, list(range(COUNT)), batch_size=2),
    "parts": lambda seed: sources.concatenate([ArraySource(NUMBERS, batch_size=2, seed=seed) for _ in range(2)]),
}


@pytest.mark.slow_cases("parts|one by one")
@pytest.mark.parametrize("kind", UNSHUFFLED)
def test_another_seed_is_noticed_though_only_the_function_takes_it(tmp_path: Path, kind: str) -> None:
    make = UNSHUFFLED[kind]

    def steps(seed: int, **options: Any) -> list[list[int]]:
        return [step[0] for step in resumed_steps(tmp_path, make(seed=seed), 2, **dict(map_fn=seeds_of) | options)]

    assert steps(5) == [[5, 0], [5, 1]]
    assert steps(5) == [[5, 2], [5, 3]]
    with pytest.raises(ResumeError, match="'staged': .* map_fn_seed was 5, is 6"):
        steps(6)
    assert steps(5, devices=TOWERS) == [[5, 4], [5, 6]], "of the first tower"
    # A function without a seed gives the same batches whatever the seed is.
    assert steps(6, devices=TOWERS, map_fn=tf.identity)[0] == [16, 18]
    assert steps(6, devices=TOWERS) == [[6, 12], [6, 14]]
    assert steps(7, devices=TOWERS, resume="ignore") == [[7, 16], [7, 18]]


def test_a_checkpoint_without_a_seed_of_the_function_restores(tmp_path: Path) -> None:
    def steps(seed: int, **options: Any) -> list[Any]:
        source = UNSHUFFLED["arrays"](seed=seed, **options)
        return [step[0] for step in resumed_steps(tmp_path, source, 2, map_fn=seeds_of)]

    steps(5)
    saved = variables_in(tmp_path)
    fingerprint = json.loads(saved["staged/fingerprint"])
    assert fingerprint.pop("map_fn_seed") == 5 and fingerprint["seed"] == -1
    write_checkpoint(tmp_path, saved | {"staged/fingerprint": json.dumps(fingerprint)})
    assert steps(6) == [[6, 2], [6, 3]]
    with pytest.raises(ResumeError, match="map_fn_seed was 6, is 5"):
        steps(5)


def test_the_seed_of_an_order_is_that_of_the_function(tmp_path: Path) -> None:
    resumed_steps(tmp_path, source(), 2, map_fn=seeds_of)
    assert "map_fn_seed" not in variables_in(tmp_path)["staged/fingerprint"]
    other = ArraySource(NUMBERS, **ORDER | dict(seed=6))
    with pytest.raises(ResumeError, match="another order of batches: seed was 5, is 6. The saved"):
        resumed_steps(tmp_path, other, 2, map_fn=seeds_of)


def test_spec_says_what_goes_in_and_cast_what_comes_out(graph: Any) -> None:
    spec = tf.TensorSpec([BATCH], tf.int64)
    shapes = []

    def halves(batch: Any) -> Any:
        shapes.append(batch.shape.as_list())
        return {"half": batch / 2}

    x = staging.staged(ArraySource(NUMBERS, **ORDER), map_fn=halves, spec=spec, cast={"half": tf.float32})
    assert shapes == [[BATCH]], "traced once"
    assert x["half"].dtype == tf.float32 and x["half"].shape.as_list() == [BATCH]
    with pytest.raises(SpecError, match="cast= names unknown component 'third'. The components are 'half'"):
        staging.staged(ArraySource(NUMBERS, **ORDER), map_fn=halves, cast={"third": tf.float32})


def test_the_memory_limit_holds_for_what_is_staged(graph: Any) -> None:
    source = ArraySource(NUMBERS, batch_size=BATCH, drop_remainder=True)
    x = staging.staged(source, map_fn=lambda batch: tf.zeros([BATCH, 100]), memory_limit=4000, capacity=9)
    assert x.shape.as_list() == [BATCH, 100]
    with staging.StagingSession() as sess:
        sess.run(x)
        (stats,) = sess.stats()
        assert stats.capacity == 2 and stats.bytes // 1600 == stats.records // BATCH
    with pytest.raises(ValueError, match="the size of an element is unknown at build time"):
        staging.staged(ArraySource(NUMBERS, batch_size=BATCH), map_fn=tf.identity, memory_limit=4000)


# An op that fails.


def not_three(batch: Any) -> Any:
    good = tf.reduce_all(tf.not_equal(batch, 3))
    with tf.control_dependencies([tf.debugging.Assert(good, ["three"])]):
        return tf.identity(batch)


def in_a_loop(batch: Any) -> Any:
    def checked(number: Any) -> Any:
        return tf.cond(number > 2, lambda: tf.debugging.check_numerics(1 / (number - 3), "three"), lambda: number)

    return tf.map_fn(checked, tf.cast(batch, tf.float32))


@function.Defun(tf.int64)
def twice(number: Any) -> Any:
    return 2 * number


def beside_a_defun(batch: Any) -> Any:
    with tf.control_dependencies([tf.debugging.Assert(tf.not_equal(batch[0], 3), ["three"])]):
        return tf.ensure_shape(twice(batch), [1])


FED = [dict(), dict(num_threads=3), dict(lockstep=True)]


@pytest.mark.parametrize("options", FED, ids=str)
@pytest.mark.parametrize(("map_fn", "line"), [(not_three, 2), (in_a_loop, 2), (beside_a_defun, 1)])
def test_it_names_the_batch_and_the_line(graph: Any, map_fn: Any, line: int, options: dict[str, Any]) -> None:
    x = staging.staged(ArraySource(np.arange(6), batch_size=1, epochs=1), map_fn=map_fn, name="train", **options)
    first = map_fn.__code__.co_firstlineno
    with pytest.raises(tf.errors.InvalidArgumentError) as caught, staging.StagingSession() as sess:
        for _ in range(6):
            sess.run(x)
    where = f"{map_fn.__name__} (test_map_fn.py:{first}) failed for batch 3, at test_map_fn.py:{first + line}: "
    assert caught.value.message.startswith(f"'train': map_fn {where}")
    assert "three" in caught.value.message


@pytest.mark.parametrize("options", [*FED, dict(devices=TOWERS), dict(share="dynamic")], ids=str)
def test_its_batch_can_be_skipped(graph: Any, options: dict[str, Any]) -> None:
    options = dict(options, ignored_exception_types=tf.errors.InvalidArgumentError, max_ignored=1)
    x = staging.staged(ArraySource(np.arange(6), batch_size=1, epochs=1), map_fn=not_three, **options)
    towers = x if "devices" in options else [x]
    got = []
    with staging.StagingSession() as sess:
        for tower in [towers, *([tower] for tower in towers)]:
            while True:
                try:
                    got += np.ravel(sess.run(tower)).tolist()
                except tf.errors.OutOfRangeError:
                    break
        assert sum(each.ignored for each in sess.stats()) == 1
    assert sorted(got) == [0, 1, 2, 4, 5]


def test_it_cannot_end_the_data(graph: Any) -> None:
    def ends(batch: Any) -> Any:
        return tf.numpy_function(lambda values: next(iter(())), [batch], tf.int64)

    x = staging.staged(ArraySource(NUMBERS, **ORDER), map_fn=ends, name="train")
    with pytest.raises(
        SourceError, match="(?s)'train': the source raised OutOfRangeError.*This is an error, not the end"
    ):
        with staging.StagingSession() as sess:
            sess.run(x)


# What is refused, at the call. The graph stays as it was.


class NoFunction:
    def __str__(self) -> str:
        return "NoFunction"


def source() -> ArraySource:
    return ArraySource(NUMBERS, **ORDER)


def layer(batch: Any) -> Any:
    return tf.cast(batch, tf.float32) * tf.get_variable("scale", [])


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (
        lambda: 3,
        TypeError,
        r"got map_fn=3, expected a function map_fn\(batch\) or map_fn\(batch, seed\)",
    ),
    "two components": (
        lambda: lambda image, label: image,
        TypeError,
        r"map_fn <lambda> \(test_map_fn.py:\d+\) takes \(image, label\), expected .* A tuple or dict is one argument",
    ),
    "no argument": (lambda: lambda: 1, TypeError, r"takes \(\), expected a function map_fn\(batch\)"),
    "no tensor": (lambda: lambda batch: {"x": None}, SpecError, "returned NoneType as component 'x', expected a nest"),
    "nothing": (lambda: lambda batch: {}, SpecError, "returned {}, expected a nest of tensors"),
    "a dataset": (
        lambda: lambda batch: tf.data.Dataset.from_tensors(batch)._variant_tensor,
        SpecError,
        "returned a tensor of dtype variant as the batch, which cannot be staged",
    ),
    "a new variable": (
        lambda: layer,
        BuildError,
        "map_fn layer .* makes the variable 'scale'. A batch is made",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_must_not_be(graph: Any, what: str) -> None:
    make, error, text = REFUSED[what]
    map_fn = make()
    before = len(graph.get_operations())
    with pytest.raises(error, match=text):
        staging.staged(source(), map_fn=map_fn, name="train")
    assert len(graph.get_operations()) == before


VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "tensors": (
        lambda: tf.constant([1.0]),
        r"with values that the graph computes. Call it on them",
    ),
    "a dataset": (lambda: tf.data.Dataset.range(9), r"Use dataset.map\(map_fn\) instead"),
}


@pytest.mark.parametrize("what", VALUES)
def test_values_that_the_graph_computes_are_refused(graph: Any, what: str) -> None:
    make, text = VALUES[what]
    with pytest.raises(ValueError, match=text):
        staging.staged(make(), map_fn=tf.identity)


@pytest.mark.parametrize("make", [lambda: ArraySource(NUMBERS, batch_size=2), lambda: Counting()])
def test_a_seed_needs_one_of_the_source(graph: Any, make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="takes a seed, but .* has none. Pass seed= to a source with random access"):
        staging.staged(make(), map_fn=lambda batch, seed: batch)


def scaled(batch: Any, seed: Any = None, by: float = 2.0) -> Any:
    """Return the batch times `by`, and what it got as a seed."""
    return by * tf.cast(batch, tf.float64), tf.constant([-1, -1], tf.int64) if seed is None else tf.cast(seed, tf.int64)


@pytest.mark.parametrize(
    ("map_fn", "by", "seed"),
    [
        (scaled, 2.0, [5, 0]),
        (partial(scaled, by=3.0), 3.0, [5, 0]),
        (partial(scaled, seed=[7, 7]), 2.0, [7, 7]),
        (lambda batch, **options: scaled(batch, **options), 2.0, [-1, -1]),
    ],
)
def test_a_seed_that_is_bound_stays(graph: Any, map_fn: Any, by: float, seed: list[int]) -> None:
    x = staging.staged(source(), map_fn=map_fn)
    with staging.StagingSession() as sess:
        rows, used = sess.run(x)
    assert (rows / by).tolist() == source().batch(0).tolist() and used.tolist() == seed


def test_what_it_raises_is_the_users(graph: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        staging.staged(source(), map_fn=lambda batch: batch * (1 // 0))
