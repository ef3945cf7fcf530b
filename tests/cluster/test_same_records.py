"""Workers whose sources have other records of the same shape are found at the start: source by source."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1.cluster.shared_input import CONTENT, check_same_input
from staging_tf1.errors import ClusterError
from staging_tf1.sources import ArraySource, MapSource, RecordSource, SequenceSource, concatenate, zip_records

COUNT = 1000
# Both workers have them in these orders.
SAME, SHUFFLED = np.arange(COUNT), np.random.default_rng(0).permutation(COUNT)

array = functools.partial(ArraySource, batch_size=4)
mapped = functools.partial(MapSource, batch_size=4)


def in_file(folder: Path, values: Any, order: Any) -> Any:
    """A memory-mapped file of the values."""
    path = folder / f"{int(order[0])}.npy"
    np.save(path, values[order])
    return np.load(path, mmap_mode="r")


IDS = np.arange(COUNT)
FLOATS = np.random.default_rng(1).normal(size=(COUNT, 7)).astype(np.float32)
IMAGES = np.random.default_rng(2).integers(0, 256, (COUNT, 5, 5), np.uint8)
TEXTS = [f"text {number}" for number in range(COUNT)]

# A source of the records in an order. Each fails to be the same if the order is another one.
SOURCES: dict[str, Callable[[Path, Any], RecordSource]] = {
    "integers": lambda folder, order: array(IDS[order]),
    "floats": lambda folder, order: array(FLOATS[order]),
    "complex": lambda folder, order: array(FLOATS[order].astype(np.complex64)),
    "strings": lambda folder, order: array(np.array(TEXTS)[order]),
    "bytes": lambda folder, order: array(np.array(TEXTS, "S")[order]),
    "one component of two": lambda folder, order: array({"same": IDS, "label": IDS[order]}),
    "not contiguous": lambda folder, order: array(np.repeat(IDS[order], 2)[::2]),
    "a file": lambda folder, order: array(in_file(folder, IDS, order)),
    "a part": lambda folder, order: array(IDS[order]).take(900),
    "a shard": lambda folder, order: array(IDS[order], shard=(0, 2)),
    "concatenated": lambda folder, order: concatenate([array(IDS), array(IDS[order])]),
    "zipped": lambda folder, order: zip_records({"a": array(IDS), "b": array(FLOATS[order])}),
    "a list of numbers": lambda folder, order: mapped(IDS[order].tolist()),
    "a list of arrays": lambda folder, order: mapped(list(FLOATS[order])),
    "a tuple of dicts": lambda folder, order: mapped(tuple({"x": FLOATS[i], "y": (int(i), 1)} for i in order)),
    "a list of pairs": lambda folder, order: mapped([("same.png", int(i)) for i in order], load=lambda pair: pair[1]),
    "columns": lambda folder, order: mapped({"x": IDS[order], "y": IMAGES[order]}),
    "a table": lambda folder, order: mapped(pytest.importorskip("pandas").DataFrame({"x": FLOATS[order, 0]})),
    "a sequence": lambda folder, order: SequenceSource([IDS[order[i : i + 4]] for i in range(0, COUNT, 4)]),
}


def check(own: RecordSource, told: RecordSource) -> None:
    """Compare two sources, as a worker does what the chief has told in the ledger."""
    inputs = [{CONTENT: source.content_sample()} for source in (own, told)]
    check_same_input("train", inputs[0], json.loads(json.dumps(inputs[1])), "worker 1", "the chief")


@pytest.mark.parametrize("kind", SOURCES)
def test_records_in_another_order_are_others(tmp_path: Path, kind: str) -> None:
    make = SOURCES[kind]
    check(make(tmp_path, SAME), make(tmp_path, SAME))
    with pytest.raises(ClusterError, match="^pipeline 'train': .* of the source of worker 1 differs from that of the "):
        check(make(tmp_path, SHUFFLED), make(tmp_path, SAME))


def test_the_message_names_the_component_and_the_cure() -> None:
    make = SOURCES["one component of two"]
    with pytest.raises(ClusterError) as raised:
        check(make(Path(), SHUFFLED), make(Path(), SAME))
    assert str(raised.value) == (
        "pipeline 'train': component 'label' of the source of worker 1 differs from that of the chief, in a sample of "
        "the records. Give every worker the same records in the same order (shuffle=True with a seed= shuffles them in "
        "the source), or share='own' if each has records of its own."
    )


# What two machines may compute or call differently.
EQUAL: dict[str, tuple[Callable[[], RecordSource], Callable[[], RecordSource]]] = {
    "rounding": (lambda: array(FLOATS), lambda: array(FLOATS * np.float32(1 + 1e-6))),
    "rounding in a list": (lambda: mapped(list(FLOATS)), lambda: mapped(list(FLOATS + np.float32(1e-6)))),
    "not a number": (lambda: array(np.where(IDS > 5, np.nan, 1.0)), lambda: array(np.where(IDS > 5, np.nan, 1.0))),
    "byte order": (lambda: array(IDS), lambda: array(IDS.astype(">i8"))),
    "folders": (
        lambda: mapped([(f"/data/{i}.png", i) for i in range(COUNT)], load=len),
        lambda: mapped([(f"/mnt/data/{i}.png", i) for i in range(COUNT)], load=len),
    ),
    "seeds": (lambda: array(IDS, shuffle=True), lambda: array(IDS, shuffle=True)),
    "shards": (lambda: array(IDS, shard=(0, 2)), lambda: array(IDS, shard=(1, 2))),
    "one record": (lambda: array(IDS[:1]), lambda: array(IDS[:1])),
}


@pytest.mark.parametrize("kind", EQUAL)
def test_what_two_machines_do_differently_is_no_difference(kind: str) -> None:
    own, told = EQUAL[kind]
    check(own(), told())


class Slow:
    """A dataset whose records take long to read, as most do."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        raise AssertionError("read for a comparison")


class SlowList(list):  # type: ignore[type-arg]
    """The same as a list."""

    __getitem__ = Slow.__getitem__  # type: ignore[assignment]


@pytest.mark.parametrize("dataset", [Slow(), SlowList(range(COUNT)), [object()] * COUNT], ids=["own", "list", "any"])
def test_code_of_the_user_is_not_called(dataset: Any) -> None:
    source = mapped(dataset, load=lambda record: 1)
    assert source.content_sample() == {}
    check(source, mapped(list(range(COUNT))))
    check(mapped(list(range(COUNT))), source)


def test_a_sample_is_small_and_reads_little() -> None:
    rows = np.zeros((10**6, 1), np.int64)
    wide = np.lib.stride_tricks.as_strided(rows, (10**6, 10**6), (8, 0), writeable=False)
    sample = array({"wide": wide, "floats": np.zeros((10**6, 3))}).content_sample()
    assert len(json.dumps(sample)) < 2000
