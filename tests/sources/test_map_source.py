"""MapSource and SequenceSource: whatever has a length and numbered records, and what must not be read by guess."""

from __future__ import annotations

import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from processes import RunPython

from staging_tf1 import testing
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources import MapSource, SequenceSource, as_source, concatenate
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import ArraySpec, flatten
from staging_tf1.spec.ragged import RaggedValue


class Squares:
    """A map-style dataset that notes how it was read."""

    def __init__(self, count: int = 11) -> None:
        self.count, self.read = count, list[Any]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        assert type(i) is int, "only plain integers are passed"
        if not 0 <= i < self.count:
            raise IndexError(i)
        self.read.append(i)
        return {"n": i, "square": np.float32(i * i)}


class Batched(Squares):
    def __getitems__(self, numbers: list[int]) -> list[Any]:
        self.read.append(numbers)
        return [{"n": i, "square": np.float32(i * i)} for i in numbers]


OPTIONS: dict[str, Any] = dict(batch_size=4, epochs=2, shuffle=True, seed=1)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dataset", [Squares, Batched])
def test_a_dataset_is_a_source_like_any_other(dataset: Any, threads: int) -> None:
    source = MapSource(dataset(), threads=threads, **OPTIONS)
    assert source.spec == {"n": ArraySpec((None,), np.int64, "n"), "square": ArraySpec((None,), np.float32, "square")}
    testing.assert_resumes_everywhere(source)
    testing.assert_deterministic(source)
    testing.assert_shards_partition(source, 3)
    for k in range(source.num_batches or 0):
        batch = source.batch(k)
        assert batch["n"].tolist() == source.record_ids(k).tolist()
        assert batch["square"].tolist() == [n * n for n in batch["n"].tolist()]
        assert all(is_aligned(leaf) for leaf in flatten(batch))


def test_many_records_are_read_at_once_where_the_dataset_can() -> None:
    dataset = Batched()
    source = MapSource(dataset, batch_size=4)
    source.batch(1)
    assert dataset.read == [[4, 5, 6, 7], [0]], "a batch, and the record that decides the spec"


def test_an_inherited_getitems_that_knows_nothing_of_getitem_is_not_called() -> None:
    class Doubled(Batched):
        def __getitem__(self, i: int) -> Any:
            return {"n": 2 * i, "square": np.float32(0)}

    assert MapSource(Doubled(), batch_size=4).batch(0)["n"].tolist() == [0, 2, 4, 6]


RECORDS: dict[str, tuple[list[Any], Any]] = {
    "integers": ([3, 4], [3, 4]),
    "floats": ([0.5, 1], [0.5, 1.0]),
    "bools": ([True, False], [True, False]),
    "strings": (["a", "bc"], [b"a", b"bc"]),
    "bytes": ([b"a\0", b""], [b"a\0", b""]),
    "lists": ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    "arrays": ([np.zeros(2), np.ones(2)], [[0, 0], [1, 1]]),
    "numpy numbers": ([np.int16(1), np.int16(2)], [1, 2]),
    "big endian": ([np.ones(2, ">i4")] * 2, [[1, 1], [1, 1]]),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_of_python_and_numpy(kind: str) -> None:
    records, batch = RECORDS[kind]
    assert MapSource(records, batch_size=2).batch(0).tolist() == batch
    nested = MapSource([(record, {"x": record}) for record in records], batch_size=2).batch(0)
    assert nested[0].tolist() == batch == nested[1]["x"].tolist()


def test_collate_is_a_function() -> None:
    def collate(records: list[Any]) -> Any:
        longest = max(map(len, records))
        return {"x": [record + [0] * (longest - len(record)) for record in records], "length": list(map(len, records))}

    source = MapSource([[1], [2, 3], [4], [5, 6, 7]], batch_size=2, collate=collate, epochs=1)
    assert source.spec["x"] == ArraySpec((2, None), np.int64, "x")
    assert source.batch(1)["x"].tolist() == [[4, 0, 0], [5, 6, 7]] and source.batch(1)["length"].tolist() == [1, 3]
    testing.assert_resumes_everywhere(source)
    assert MapSource([[1], [2, 3]], batch_size=2, collate="pad").batch(0).tolist() == [[1, 0], [2, 3]]


def test_the_records_of_a_batch_are_read_by_several_threads() -> None:
    barrier = threading.Barrier(3, timeout=30)

    def load(number: int) -> int:
        if started:
            barrier.wait()
        return number

    started: list[int] = []
    source = MapSource(list(range(9)), batch_size=3, load=load, threads=3)
    assert source.spec.dtype == np.int64
    started.append(1)
    before = set(threading.enumerate())
    assert source.batch(2).tolist() == [6, 7, 8]
    assert set(threading.enumerate()) <= before, "no thread is left"


def test_a_dataset_that_is_not_thread_safe_is_read_by_one_thread_at_a_time() -> None:
    both = threading.Barrier(2)
    met: list[int] = []

    class Unsafe(Squares):
        def __getitem__(self, i: int) -> Any:
            if ready:
                with suppress(threading.BrokenBarrierError):
                    met.append(both.wait(0.5))
            return super().__getitem__(i)

    ready: list[bool] = []
    source = MapSource(Unsafe(8), batch_size=4, threads=2, thread_safe=False)
    # Read by one thread: from now on it is known that the records share no memory.
    source.batch(0)
    ready.append(True)
    with ThreadPoolExecutor(2) as pool:
        assert [batch["n"].tolist() for batch in pool.map(source.batch, (0, 1))] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not met, "read by two threads"


def test_the_first_exception_of_a_record_is_raised_as_it_is() -> None:
    class Bad(Squares):
        def __getitem__(self, i: int) -> Any:
            if i in (5, 7):
                raise OSError(f"record {i} is bad")
            return i

    for threads in (1, 4):
        source = MapSource(Bad(), batch_size=4, threads=threads)
        with pytest.raises(OSError, match="record 5 is bad"):
            source.batch(1)
        assert source.batch(0).tolist() == [0, 1, 2, 3]


# Columns


def test_a_dict_of_arrays_is_columns() -> None:
    source = MapSource({"x": np.arange(11), "y": np.arange(11) / 2}, **OPTIONS)
    assert source.batch(0)["x"].tolist() == source.record_ids(0).tolist()
    testing.assert_deterministic(source)
    loaded = MapSource({"x": np.arange(4)}, batch_size=2, load=lambda record: record["x"] + 1)
    assert loaded.batch(1).tolist() == [3, 4]


def test_h5py_is_read_as_columns(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["image"] = np.arange(600).reshape(100, 6)
        file.create_dataset("name", data=[f"{n}" for n in range(100)])
        for dataset in (file, file["/"]):
            source = MapSource(dataset, threads=2, **OPTIONS)
            testing.assert_deterministic(source, max_batches=6)
            testing.assert_shards_partition(source, 3)
            ids = source.record_ids(3)
            assert (source.batch(3)["image"][:, 0] == 6 * ids).all()
            assert source.batch(3)["name"].tolist() == [str(n).encode() for n in ids]
        crossing = MapSource(file["image"], **{**OPTIONS, "batch_size": 150, "epochs": None}, across_epochs=True)
        assert (crossing.batch(0)[:, 0] == 6 * crossing.record_ids(0)).all(), "records come twice in a batch"


def test_zarr_is_read_as_columns(tmp_path: Any) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "z"), mode="w")
    for name, array in (("image", np.arange(600).reshape(100, 6)), ("label", np.arange(100))):
        made = group.create_array(name, shape=array.shape, chunks=(10, *array.shape[1:]), dtype=array.dtype)
        made[...] = array
    source = MapSource(group, **OPTIONS)
    testing.assert_deterministic(source, max_batches=6)
    assert (source.batch(3)["image"][:, 0] == 6 * source.record_ids(3)).all()
    assert MapSource(group["label"], **OPTIONS).batch(3).tolist() == source.record_ids(3).tolist()
    zarr.core.sync.cleanup_resources()  # its own threads, which it keeps otherwise


def test_pandas_is_read_by_row() -> None:
    pandas = pytest.importorskip("pandas")
    # With an index of its own, frame[3] and frame.loc[3] would be other rows, or columns.
    frame = pandas.DataFrame(
        {"x": np.arange(11) / 2, "n": np.arange(11), "s": list("abcdefghijk")}, index=range(10, -1, -1)
    )
    source = MapSource(frame, **OPTIONS)
    assert source.batch(1)["n"].tolist() == source.record_ids(1).tolist()
    assert source.spec["s"] == ArraySpec((None,), np.dtype(object), "s")
    testing.assert_shards_partition(source, 2)
    assert MapSource(frame["x"], batch_size=11).batch(0).tolist() == (np.arange(11) / 2).tolist()
    for column, message in (
        (pandas.array([1, None], dtype="Int64"), "component 'c'"),
        (pandas.to_datetime(["2020-01-01"] * 2), "component 'c' has dtype datetime64"),
        (pandas.Categorical(["a", "b"]), "component 'c'"),
    ):
        with pytest.raises(SpecError, match=message):
            MapSource(pandas.DataFrame({"c": column}), batch_size=2)
    with pytest.raises(TypeError, match="column names=\\[0, 1\\], expected different strings"):
        MapSource(pandas.DataFrame(np.ones((2, 2))), batch_size=2)


def test_a_hugging_face_dataset_is_read_batch_by_batch() -> None:
    datasets = pytest.importorskip("datasets")
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"tokens": [list(range(n)) for n in range(11)], "label": list(range(11))})
    dataset = datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="x")
    source = MapSource(dataset, collate="pad", **OPTIONS)
    batch = source.batch(1)
    assert batch["label"].tolist() == source.record_ids(1).tolist()
    assert (batch["tokens"] != 0).sum(axis=1).tolist() == [max(0, n - 1) for n in batch["label"]]
    plain = datasets.Dataset(datasets.table.InMemoryTable(table.select(["label"])), fingerprint="y")
    plain.set_format("numpy")
    testing.assert_deterministic(MapSource(plain, **OPTIONS))
    with pytest.raises(TypeError, match="Choose a split: dataset\\['train'\\]"):
        MapSource(datasets.DatasetDict(train=dataset), batch_size=1)


def test_torch_datasets_and_tensors() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(11), torch.ones(11, 2))
    source = MapSource(data, **OPTIONS)
    assert source.batch(0)[0].tolist() == source.record_ids(0).tolist() and source.batch(0)[1].dtype == np.float32
    part = MapSource(torch.utils.data.Subset(data, [3, 5]), batch_size=2)
    assert part.batch(0)[0].tolist() == [3, 5]
    with pytest.raises(SpecError, match="detach"):
        MapSource([torch.ones(1, requires_grad=True)], batch_size=1).batch(0)


def test_a_dataset_that_shrinks_says_so_and_one_that_grows_goes_on() -> None:
    dataset = Squares(8)
    source = MapSource(dataset, batch_size=4, epochs=1)
    dataset.count = 10
    assert source.num_batches == 2 and source.batch(1)["n"].tolist() == [4, 5, 6, 7]
    dataset.count = 6
    message = "MapSource: the dataset had 8 records when the source was made, and has 6 now. Records must stay"
    with pytest.raises(StagingError, match=message):
        source.batch(1)
    dataset.count = 8
    assert source.batch(1)["n"].tolist() == [4, 5, 6, 7]


def test_an_index_error_of_the_dataset_stays_one_if_it_did_not_shrink() -> None:
    class Bad(Squares):
        def __getitem__(self, i: int) -> Any:
            raise IndexError("my own")

    with pytest.raises(IndexError, match="my own"):
        MapSource(Bad(), batch_size=2).batch(0)


def test_getitems_must_return_as_many_records() -> None:
    class Short(Squares):
        def __getitems__(self, numbers: list[int]) -> list[Any]:
            return [{"n": 1}]

    with pytest.raises(SpecError, match="__getitems__ returned a list of 1 for 4 numbers, expected"):
        MapSource(Short(), batch_size=4).batch(0)


# SequenceSource


class Sequence:
    """As a Keras `Sequence`: 5 batches, the last one partial."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, k: int) -> Any:
        rows = np.arange(4 * k, min(4 * k + 4, 18))
        return rows.astype(np.float32), rows


def test_the_elements_of_a_sequence_are_batches() -> None:
    source = SequenceSource(Sequence(), shuffle=True, seed=2, epochs=2)
    assert source.spec == (ArraySpec((None,), np.float32, "[0]"), ArraySpec((None,), np.int64, "[1]"))
    assert (source.num_batches, source.batches_per_epoch, source.bytes_per_batch) == (10, 5, 4 * 12)
    testing.assert_resumes_everywhere(source)
    testing.assert_deterministic(source)
    rows = [batch[1].tolist() for batch in source.with_options(epochs=1).batches()]
    assert sorted(rows) == [list(range(k, min(k + 4, 18))) for k in range(0, 20, 4)]
    shards = [[batch[1][0] for batch in source.shard(i, 2).batches()] for i in (0, 1)]
    assert sorted(map(len, shards)) == [4, 6]
    assert source.take(2).num_batches == 4
    assert SequenceSource(Sequence(), transform=lambda batch: batch[1] + 1).batch(0).tolist() == [1, 2, 3, 4]


def test_as_source_says_which_source_takes_a_dataset() -> None:
    with pytest.raises(TypeError, match=r"got a dataset of 11 elements .* Wrap it: staging_tf1.sources.MapSource\("):
        as_source(Squares())
    keras_like = types.new_class("PyDataset", (Sequence,))
    keras_like.__module__ = "keras.src.trainers"
    with pytest.raises(TypeError, match=r"Wrap it: staging_tf1.sources.SequenceSource\(dataset\)"):
        as_source(keras_like())


def test_no_library_is_imported_to_find_out(run_python: RunPython) -> None:
    code = (
        "import sys; from staging_tf1 import sources\n"
        "sources.MapSource([1, 2], batch_size=2).batch(0); sources.as_source([[1]])\n"
        "libraries = 'array_record datasets fsspec grain h5py keras pandas tensorflow torch zarr'\n"
        "print(*{*libraries.split()} & {*sys.modules})\n"
    )
    ran = run_python("-c", code)
    assert (ran.stdout, ran.returncode) == ("\n", 0), ran.stderr


# Records that a collate function makes.


def _tenfold(records: list[Any]) -> Any:
    return np.array([[record * 10] for record in records])


def test_records_that_are_laid_out_are_those_that_collate_makes() -> None:
    source = MapSource([1, 2, 3], batch_size=3, collate=_tenfold, epochs=1)
    for each in (source, source.shard(0, 1), concatenate([source, source]).take(3)):
        assert each.pad(to=2).batch(0).tolist() == [[10, 0], [20, 0], [30, 0]]
        assert each.ragged().batch(0).to_list() == [[10], [20], [30]]


def test_rows_of_ragged_batches_are_no_records() -> None:
    def collate(records: list[Any]) -> Any:
        return {"x": RaggedValue.from_rows([[record] for record in records])}

    message = r"component 'x' of a batch is a .*RaggedValue, expected an array.* without collate=\."
    with pytest.raises(SpecError, match=message):
        MapSource([1, 2], batch_size=2, collate=collate).pad().batch(0)
