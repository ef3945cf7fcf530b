"""GrainSource on the three kinds of Grain pipelines."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources import GrainSource, as_source
from staging_tf1.sources.grain import GrainIterSource, GrainMapSource
from staging_tf1.spec import ArraySpec
from staging_tf1.testing import assert_deterministic, assert_resumes_everywhere

grain = pytest.importorskip("grain")


def _records(n: int = 10) -> Any:
    return grain.MapDataset.range(n).seed(1).shuffle().map(lambda x: {"x": np.int64(x)})


def _loader() -> Any:
    return grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 10, 1),
        sampler=grain.samplers.IndexSampler(num_records=10, shuffle=True, seed=1, num_epochs=2),
        operations=[grain.transforms.Batch(4)],
        worker_count=0,
    )


def test_a_map_dataset_has_random_access() -> None:
    source = GrainSource(_records().batch(4))
    assert isinstance(source, GrainMapSource)
    assert source.spec == {"x": ArraySpec((None,), np.int64, "x")}
    assert (source.num_batches, source.batch_size) == (3, 4)
    read = np.concatenate([source.batch(k)["x"] for k in range(3)])
    assert sorted(read.tolist()) == list(range(10))
    assert_resumes_everywhere(lambda: GrainSource(_records().batch(4)))
    assert_deterministic(source)
    assert GrainSource(_records().batch(4).repeat()).num_batches is None


def test_shards_of_a_map_dataset_deal_out_batches() -> None:
    source = GrainSource(_records(12).batch(2))
    assert isinstance(source, GrainMapSource)
    shards = [source.shard(i, 3) for i in range(3)]
    read = [int(x) for shard in shards for k in range(shard.num_batches or 0) for x in shard.batch(k)["x"]]
    assert sorted(read) == list(range(12))
    with pytest.raises(ValueError, match=r"^GrainSource got shard index=3, expected a whole number from 0 to 2 \(of 3"):
        source.shard(3, 3)


@pytest.mark.parametrize("kind", ["iter", "loader"])
def test_streams_resume(kind: str) -> None:
    def make() -> Any:
        return GrainSource(_loader() if kind == "loader" else _records().batch(3).to_iter_dataset())

    source = make()
    assert isinstance(source, GrainIterSource) and source.spec is None
    source.resolve_spec()
    assert_resumes_everywhere(make)
    whole = [np.asarray(list(_leaves(batch))) for batch in source.batches()]
    restored = make()
    restored.restore(2, source.state(2))
    reads = _count_reads(restored)
    resumed = [np.asarray(list(_leaves(batch))) for batch in restored.batches(2)]
    assert all(map(np.array_equal, whole[2:], resumed)) and len(resumed) == len(whole) - 2
    assert next(reads) == len(resumed)  # nothing was read and dropped
    with pytest.raises(StagingError, match=r"^GrainSource has no state for position 99; known positions: 1 to \d+\.$"):
        source.state(99)


def _leaves(batch: Any) -> Any:
    return batch["x"] if isinstance(batch, dict) else batch


def _count_reads(source: Any) -> Any:
    reads = itertools.count()
    remember = source._remember

    def counting(position: int, state: Any) -> None:
        next(reads)
        remember(position, state)

    source._remember = counting
    return reads


def test_unbatched_and_filtered_elements_are_refused() -> None:
    with pytest.raises(SpecError, match=r"element 0 is \{'x': .*int64 \[\].*\}, one record; expected batches\. Use d"):
        _ = GrainSource(_records()).spec
        GrainSource(_records()).batch(0)  # type: ignore[union-attr]
    holes = GrainSource(grain.MapDataset.range(4).filter(lambda x: x > 1))
    with pytest.raises(SpecError, match=r"element 0 is None: filter\(\) leaves gaps in a MapDataset\. Call "):
        holes.batch(0)  # type: ignore[union-attr]
    with pytest.raises(SpecError, match=r"^GrainSource got an empty MapDataset\.$"):
        GrainSource(grain.MapDataset.range(0))


def test_as_source_knows_grain() -> None:
    assert isinstance(as_source(_records().batch(2)), GrainMapSource)
    assert isinstance(as_source(_loader()), GrainIterSource)
    with pytest.raises(
        TypeError, match=r"^GrainSource got dataset=\[1\], expected a grain\.MapDataset, grain\.IterDataset"
    ):
        GrainSource([1])


def _scaled(record: Any) -> Any:
    record["x"] /= 255
    return record


def _popped(record: Any) -> Any:
    return {"y": record.pop("x")}


def _noisy(record: Any) -> Any:
    return {"x": record["x"] + np.random.random()}


@pytest.mark.parametrize("change", [_scaled, _popped, _noisy])
def test_a_function_that_changes_its_record_is_refused(change: Any) -> None:
    source = GrainSource(_changed_by(change))
    problem = "raised KeyError when it was read again: 'x'" if change is _popped else "has other values when it is read"
    with pytest.raises(StagingError, match=f"^GrainSource: element 0 {problem}.*Change a copy of the record, and draw"):
        source.spec  # noqa: B018


@pytest.mark.parametrize("change", [_scaled, _noisy])
def test_so_is_one_in_a_stream(change: Any) -> None:
    source = GrainSource(_changed_by(change).to_iter_dataset())
    source.resolve_spec()
    with pytest.raises(StagingError, match="^GrainSource: element 0 has other values when it is read again"):
        next(source.batches())


def _changed_by(change: Any) -> Any:
    return grain.MapDataset.source([{"x": np.full(1, 255.0)} for _ in range(4)]).map(change).batch(2)
