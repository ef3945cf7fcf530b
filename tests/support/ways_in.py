"""Every way to feed the values of a batch: what makes the batch, and the pipelines that carry it to a step."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.define.specs import can_be_split
from staging_tf1.sources import (
    ArraySource,
    GeneratorSource,
    GrainSource,
    MapSource,
    Source,
    StreamSource,
    TFRecordSource,
    as_source,
    concatenate,
)
from staging_tf1.spec import ArraySpec

# The records of a record source whose content is decided by a function.
_ONE = np.zeros((1,), np.int64)


class Given(Source):
    """A source as users write it: `batch` calls `make`."""

    num_records = batches_per_epoch = num_batches = None
    batch_size = 1
    spec = None

    def __init__(self, make: Callable[[], Any], spec: Any, gives_away: bool = True) -> None:
        self._make, self.spec, self.gives_away = make, spec, gives_away

    def batch(self, index: int) -> Any:
        return self._make()

    def shard(self, index: int, count: int) -> Source:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, int | str]:
        return {"source": "given"}


class GivenStream(StreamSource):
    """The same as a stream, read front to back; it ends when `make` raises StopIteration."""

    def __init__(self, make: Callable[[], Any], spec: Any) -> None:
        self._make, self._spec = make, spec

    @property
    def spec(self) -> Any:
        return self._spec

    def resolve_spec(self) -> Any:
        return self._spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        while True:
            yield self._make()


def record_file(folder: Path) -> str:
    """A TFRecord file of one record, for a `parse_fn` that ignores it."""
    path = str(folder / "one.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"record")
    return path


def _grain(value: Any) -> Any:
    import grain

    return GrainSource(grain.MapDataset.range(1).map(lambda _: value))


# Ways to make a batch of a value that has a first dimension, by name. Each takes its dtype from the value itself.
def makers(path: str) -> dict[str, Callable[[Any], Any]]:
    """The name of a way to make a batch, and make(value), which returns a batch that consists of `value`."""
    made: dict[str, Callable[[Any], Any]] = {
        "ArraySource": lambda value: ArraySource(value, batch_size=len(value)).batch(0),
        "ArraySource, shuffled": _unshuffled,
        "transform": lambda value: ArraySource(_ONE, batch_size=1, transform=lambda batch: value).batch(0),
        "parse_fn": lambda value: TFRecordSource(path, batch_size=1, parse_fn=lambda record: value).batch(0)[0],
        "MapSource": lambda value: MapSource([value], batch_size=1).batch(0)[0],
        "MapSource, collated": _collated,
        "concatenate": _concatenated,
        "generator": lambda value: next(GeneratorSource(lambda: iter([value])).batches()),
        "iterable": lambda value: next(iter(as_source([value]).batches())),
    }
    try:
        import grain  # noqa: F401
    except ImportError:
        return made
    return made | {"Grain": lambda value: _grain(value).batch(0), "Grain, iterated": _iterated}


def _collated(value: Any) -> Any:
    try:
        count = len(value)
    except TypeError:  # what is refused, such as a tensor
        count = 1
    source = MapSource(list(range(count)), batch_size=count, collate=lambda records: value)
    return source.batch(0)


def _iterated(value: Any) -> Any:
    import grain

    dataset = grain.MapDataset.range(1).map(lambda _: value).to_iter_dataset()
    return next(iter(GrainSource(dataset).batches()))


def _concatenated(value: Any) -> Any:
    batch = concatenate([ArraySource(value, batch_size=2**16, epochs=1)] * 2).batch(0)
    return batch[: len(batch) // 2]


def _unshuffled(value: Any) -> Any:
    source = ArraySource(value, batch_size=len(value), shuffle=True, seed=1)
    return source.batch(0)[np.argsort(source.record_ids(0))]


class Pipelines:
    """The pipelines that take batches of one dtype, built once; `deliver` sends one batch through one of them.

    Args:
      dtype: a `tf.DType`.
    """

    # The dtype's queues of records only take batches of this shape.
    RECORDS = (2, 3)

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._inboxes: dict[str, queue.Queue[Any]] = {}
        self._outputs: dict[str, Any] = {}
        whole = ArraySpec(None, dtype.as_numpy_dtype)
        records = ArraySpec((None, *self.RECORDS[1:]), dtype.as_numpy_dtype)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self._fed = tf.placeholder(dtype, None)
            self._read = tf.identity(self._fed)
            self._add("source", lambda make: staging.staged(Given(make, whole)))
            self._add("stream", lambda make: staging.staged(GivenStream(make, whole)))
            self._add("generator with a spec", lambda make: staging.staged(_generator(make, whole)))
            self._add("lockstep", lambda make: staging.staged(Given(make, whole, gives_away=False), lockstep=True))
            self._add("whole batches", lambda make: _queued(Given(make, whole), queue="fifo"))
            if can_be_split(records.dtype):
                self._add("records", lambda make: _queued(Given(make, records), batch_size=2, min_after_dequeue=0))

    def _add(self, name: str, build: Callable[[Callable[[], Any]], Any]) -> None:
        inbox = self._inboxes[name] = queue.Queue()
        self._outputs[name] = build(lambda: _next_of(inbox, self._nothing))

    @property
    def _nothing(self) -> Any:
        """A batch that every pipeline takes."""
        return np.zeros(self.RECORDS, self._dtype.as_numpy_dtype) if self._dtype != tf.string else [[b""] * 3] * 2

    def __enter__(self) -> Pipelines:
        with self.graph.as_default():
            self._inboxes["lockstep"].put(self._nothing)  # for the warm-up
            self._session = staging.StagingSession()
        self._session.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for inbox in self._inboxes.values():
            inbox.put(None)
        self._session.__exit__(*error)

    @property
    def names(self) -> list[str]:
        return [*self._outputs]

    def takes(self, name: str, shape: tuple[int, ...]) -> bool:
        return shape == self.RECORDS or name != "records"

    def plain_feed(self, value: Any) -> Any:
        """Return what `feed_dict` makes of the value."""
        return self._session.run(self._read, {self._fed: value})

    def deliver(self, name: str, batch: Any) -> Any:
        """Return what a step gets of the batch."""
        self._inboxes[name].put(batch)
        if name == "lockstep":
            self._session.run(self._outputs[name])
            self._inboxes[name].put(self._nothing)
        return self._session.run(self._outputs[name])

    def put(self, values: list[Any]) -> list[Any]:
        """Return what the puts of these values deliver. They are constants of one graph, which is made for them."""
        with tf.Graph().as_default():
            areas = [staging.StagingArea([self._dtype]) for _ in values]
            puts = [area.put([value]) for area, value in zip(areas, values, strict=True)]
            taken = [area.get()[0] for area in areas]
            with tf.Session() as session:
                session.run(puts)
                got: list[Any] = session.run(taken)
                return got


def _next_of(inbox: queue.Queue[Any], nothing: Any) -> Any:
    found = inbox.get()
    if found is None:  # the end of the data: pass it on to the next reader
        inbox.put(None)
        return nothing
    return found


def _generator(make: Callable[[], Any], spec: Any) -> GeneratorSource:
    def batches() -> Iterator[Any]:
        while True:
            yield make()

    return GeneratorSource(batches, spec=spec)


def _queued(source: Source, **options: Any) -> Any:
    return staging.CustomRunner(source, capacity=8, **options).get_inputs()
