"""Sparse and ragged components on every way from a source to a step, and what the steps compute with them."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow import examples
from test_compose_staged import AT_THE_END, CPU

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.sources import (
    ArraySource,
    GeneratorSource,
    MapSource,
    RaggedValue,
    SequenceSource,
    Source,
    SparseValue,
)
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.spec import flatten, map_structure

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT = 11
SPARSE = tf.SparseTensorSpec([None, 4], tf.float32)
RAGGED = tf.RaggedTensorSpec([None, None], tf.int64)


def words(n: int) -> list[int]:
    """The words of record `n`, of which there are none to three."""
    return [n * 10 + i for i in range(n % 4)]


def batch_of(numbers: Any) -> dict[str, Any]:
    """A batch of records in TensorFlow's own values."""
    rows = [words(n) for n in numbers]
    splits = np.cumsum([0, *map(len, rows)])
    flat = np.array([word for row in rows for word in row], np.int64)
    cells = [(row, n % 4, n + 0.5) for row, n in enumerate(numbers)]
    return {
        "n": np.array(numbers),
        "words": tf.ragged.RaggedTensorValue(flat, splits),
        "cells": tf.SparseTensorValue(
            np.array([cell[:2] for cell in cells]).reshape(-1, 2),
            np.array([cell[2] for cell in cells], np.float32),
            np.array([len(cells), 4]),
        ),
    }


def parts(start: int = 0) -> Iterator[list[int]]:
    return (list(range(first, min(first + 3, COUNT))) for first in range(start, COUNT, 3))


class Own(Source):
    """A source as users write it, in the values of this package."""

    batch_size, num_records, batches_per_epoch, num_batches = 3, COUNT, 4, 4

    def __init__(self) -> None:
        self._spec = GeneratorSource(map(batch_of, parts())).resolve_spec()

    @property
    def spec(self) -> Any:
        return self._spec

    def batch(self, index: int) -> Any:
        numbers = list(parts())[index]
        cells = batch_of(numbers)["cells"]
        return {
            "n": np.array(numbers),
            "words": RaggedValue.from_rows([words(n) for n in numbers], dtype=np.int64),
            "cells": SparseValue(*cells),
        }

    def shard(self, index: int, count: int) -> Source:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, int | str]:
        return {"source": "own"}


class Records:
    """A map-style dataset of numbers."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, n: int) -> Any:
        return n


class Batches:
    """A dataset of whole batches."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        return batch_of(list(parts())[k])


def _collated(**options: Any) -> MapSource:
    return MapSource(Records(), collate=batch_of, **{"batch_size": 3, "epochs": 1, **options})


def _grain() -> Any:
    grain = pytest.importorskip("grain")
    return grain.MapDataset.range(4).map(lambda k: batch_of(list(parts())[k]))


SOURCES: dict[str, Callable[[], Any]] = {
    "generator": lambda: lambda: map(batch_of, parts()),
    "generator with a spec": lambda: GeneratorSource(
        lambda: map(batch_of, parts()), spec={"n": tf.TensorSpec([None], tf.int64), "words": RAGGED, "cells": SPARSE}
    ),
    "iterable": lambda: list(map(batch_of, parts())),
    "transform": lambda: ArraySource(
        np.arange(COUNT), batch_size=3, epochs=1, transform=lambda batch: batch_of(batch.tolist())
    ),
    "collate": _collated,
    "batches": lambda: SequenceSource(Batches(), epochs=1),
    "your own source": Own,
    "Grain": lambda: _grain(),
    "Grain, iterated": lambda: _grain().to_iter_dataset(),
}


def listed(value: Any) -> Any:
    """A fetched batch as plain values."""
    return {
        "n": value["n"].tolist(),
        "words": value["words"].to_list(),
        "cells": [np.asarray(part).tolist() for part in value["cells"]],
    }


EXPECTED = [listed(batch_of(numbers)) for numbers in parts()]


def run(tensors: Any, stats: list[Any] | None = None) -> list[Any]:
    """What all steps of a session fetch; adds the figures at its end to `stats`."""
    got: list[Any] = []
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            got.append(sess.run(tensors))
    if stats is not None:
        stats += sess.stats()
    return got


@pytest.mark.thinned
@pytest.mark.parametrize("options", [{}, {"num_threads": 2}, {"lockstep": True}], ids=["staged", "threads", "lockstep"])
@pytest.mark.parametrize("name", SOURCES)
def test_components_arrive_as_their_tensors(name: str, options: dict[str, Any]) -> None:
    with tf.Graph().as_default():
        batch = staging.staged(SOURCES[name](), **options)
        assert isinstance(batch["words"], tf.RaggedTensor) and isinstance(batch["cells"], tf.SparseTensor)
        figures: list[Any] = []
        assert list(map(listed, run(batch, figures))) == EXPECTED
    stats = figures[-1]
    assert stats.records == COUNT, "not the words, of which there are more"
    fed = [np.asarray(a) for each in EXPECTED for a in (each["n"], [w for row in each["words"] for w in row])]
    splits, cells = (COUNT + 4) * 8, sum(len(each["n"]) * (2 * 8 + 4) + 2 * 8 for each in EXPECTED)
    if name != "Grain, iterated":  # whose state is fed with each batch
        assert stats.bytes == sum(a.size * 8 for a in fed) + splits + cells, "indices and splits are counted, too"


def test_the_records_of_a_batch_are_counted_in_its_first_component() -> None:
    with tf.Graph().as_default():
        figures: list[Any] = []
        run(staging.staged([{"a": batch_of([1, 2, 3, 5])["words"]}]), figures)
        assert figures[-1].records == 4, "not the words"


@pytest.mark.parametrize("name", SOURCES)
def test_a_queue_of_whole_batches_holds_them(name: str) -> None:
    with tf.Graph().as_default():
        runner = staging.CustomRunner(SOURCES[name](), queue="fifo")
        assert isinstance(runner.placeholders["words"], tf.RaggedTensor)
        staged = staging.staged(runner.get_inputs())
        assert list(map(listed, run(staged))) == EXPECTED


@pytest.mark.parametrize("options", [{"queue": "shuffle"}, {"queue": "fifo", "batch_size": 2}])
def test_a_queue_of_records_refuses_them(graph: Any, options: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        staging.CustomRunner(_collated(), name="train", **options)
    assert str(caught.value) == (
        "CustomRunner 'train': component 'cells' is sparse float32 [?, ?], which a queue of single records cannot hold."
        " Queue whole batches: queue='fifo' without batch_size."
    )


def test_towers_share_a_source_and_a_stream() -> None:
    for source, devices in ((_collated(), 2), (SOURCES["generator"](), 2)):
        with tf.Graph().as_default():
            towers = staging.staged(source, devices=[CPU] * devices)
            got = [listed(batch) for step in run(towers) for batch in step]
        rows = [row for batch in got for row in zip(batch["n"], batch["words"])]
        assert len(rows) > 8 and all(words(n) == row for n, row in rows)


@pytest.mark.parametrize("share", ["static", "dynamic"])
def test_a_restored_run_goes_on_with_the_next_batch(tmp_path: Any, share: str) -> None:
    got: list[int] = []
    for taken in (1, 2, None):
        with tf.Graph().as_default():
            batch = staging.staged(_collated(shuffle=True, seed=3, epochs=2), share=share)
            step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            with staging.StagingSession(checkpoint_dir=str(tmp_path), **AT_THE_END) as sess:
                count = 0
                while not sess.should_stop() and count != taken:
                    value, _ = sess.run([batch, step])
                    assert [words(n) for n in value["n"]] == value["words"].to_list()
                    got += value["n"].tolist()
                    count += 1
    assert Counter(got) == Counter(2 * list(range(COUNT)))


def test_a_source_may_reuse_its_buffers() -> None:
    """At any moment the area holds batches that the generator has overwritten."""
    arrays = {
        "flat": aligned_empty(6, np.int64),
        "splits": aligned_empty(3, np.int64),
        "indices": aligned_empty((2, 2), np.int64),
        "values": aligned_empty(2, np.float64),
        "shape": aligned_empty(2, np.int64),
    }

    def reusing() -> Iterator[Any]:
        for k in range(20):
            arrays["flat"][:], arrays["splits"][:] = k, [0, k % 7, 6]
            arrays["indices"][:], arrays["values"][:], arrays["shape"][:] = [[0, k], [1, k]], k, [2, k + 1]
            yield {
                "words": tf.ragged.RaggedTensorValue(arrays["flat"], arrays["splits"]),
                "cells": tf.SparseTensorValue(arrays["indices"], arrays["values"], arrays["shape"]),
            }

    with tf.Graph().as_default():
        batch = staging.staged(reusing, capacity=8)
        taken = run(batch)
    assert len(taken) == 20
    for k, got in enumerate(taken):
        assert got["words"].to_list() == [[k] * (k % 7), [k] * (6 - k % 7)]
        assert [part.tolist() for part in got["cells"]] == [[[0, k], [1, k]], [k, k], [2, k + 1]]


def test_declared_sizes_are_checked_and_known_to_the_graph() -> None:
    spec = {"n": tf.TensorSpec([None], tf.int64), "words": RAGGED, "cells": SPARSE}
    with tf.Graph().as_default():
        batch = staging.staged(_collated(), spec=spec)
        assert batch["cells"].shape.as_list() == [None, 4]
        assert list(map(listed, run(batch))) == EXPECTED
    with tf.Graph().as_default():
        batch = staging.staged(_collated(), spec={**spec, "cells": tf.SparseTensorSpec([None, 5], tf.float32)})
        with pytest.raises(SpecError, match=re.escape("got dense_shape=[3, 4], expected sparse float32 [?, 5].")):
            run(batch)
    for other, conflict in (
        (tf.SparseTensorSpec([None, 4], tf.float64), "Sparse float64 [?, 4]  dtype"),
        (tf.TensorSpec([None, 4], tf.float32), "float32 [?, 4]         kind"),
        (tf.SparseTensorSpec([None, 4, 4], tf.float32), "shape"),
    ):
        with tf.Graph().as_default(), pytest.raises(SpecError) as caught:
            staging.staged(_collated(), spec={**spec, "cells": other})
        assert "cells      Sparse" in str(caught.value) and conflict.split()[-1] in str(caught.value)


# Batches of any nest. The values of a strategy have the components' own types; `plain` makes them comparable.

DTYPES = {
    "i": (np.int64, st.integers(-9, 9)),
    "f": (np.float32, st.integers(-9, 9)),
    "s": (object, st.binary(max_size=3)),
}
KINDS = st.tuples(st.sampled_from(["dense", "ragged", "deep", "sparse"]), st.sampled_from(sorted(DTYPES)))
NESTS = st.recursive(KINDS, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple) | st.dictionaries(
    st.sampled_from("abc"), inner, min_size=1, max_size=3
), max_leaves=5)  # fmt: skip


def is_kind(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(value[0], str)


def nest(structure: Any, function: Callable[[Any], Any]) -> Any:
    if is_kind(structure):
        return function(structure)
    if isinstance(structure, dict):
        return {key: nest(child, function) for key, child in structure.items()}
    return tuple(nest(child, function) for child in structure)


def component(draw: Any, rows: int, chosen: tuple[str, str]) -> Any:
    kind, code = chosen
    dtype, values = DTYPES[code]
    if kind == "dense":
        return np.array(draw(st.lists(values, min_size=rows, max_size=rows)), dtype)
    if kind in ("ragged", "deep"):
        row = st.lists(values, max_size=3)
        row = row if kind == "ragged" else st.lists(row, max_size=3)
        drawn = draw(st.lists(row, min_size=rows, max_size=rows))
        value = RaggedValue.from_rows(drawn, ragged_rank=1 + (kind == "deep"), dtype=dtype)
        made: Any = value.flat_values
        for splits in reversed(value.nested_row_splits):
            made = tf.ragged.RaggedTensorValue(made, splits)
        return made if draw(st.booleans()) else value
    places = sorted(draw(st.sets(st.tuples(st.integers(0, rows - 1), st.integers(0, 3))))) if rows else []
    cells = np.array(draw(st.lists(values, min_size=len(places), max_size=len(places))), dtype)
    return tf.SparseTensorValue(np.array(places, np.int64).reshape(-1, 2), cells, np.array([rows, 4]))


def plain(value: Any) -> Any:
    if hasattr(value, "to_list"):
        return value.to_list()
    if isinstance(value, (tuple, list)) and len(value) == 3 and hasattr(value, "dense_shape"):
        return [np.asarray(part).tolist() for part in value]
    return np.asarray(value).tolist()


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), structure=NESTS)
def test_any_nest_of_components_arrives_as_it_was(data: Any, structure: Any) -> None:
    structure = (structure,) if is_kind(structure) else structure
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    batches = [nest(structure, functools.partial(component, data.draw, rows)) for rows in sizes]
    with tf.Graph().as_default():
        staged = staging.staged(batches)
        got = run(staged)
    assert [map_structure(plain, batch) for batch in got] == [map_structure(plain, batch) for batch in batches]
    assert all(len(flatten(batch)) == len(flatten(staged)) for batch in got)
