"""`GrainSource`: Grain pipelines (https://google-grain.readthedocs.io), an optional extra, imported when it is used."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from staging_tf1 import arguments
from staging_tf1.arrays import as_array
from staging_tf1.conform import conform
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.sources.reshard import BY_BATCHES
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_with_paths, infer_spec, map_structure, pack

__all__ = ["GrainIterSource", "GrainMapSource", "GrainSource", "is_grain"]

# States kept to go back to: as many batches as are ever read ahead of the training step, with a margin.
_STATES_KEPT = 1024


def GrainSource(dataset: Any) -> GrainMapSource | GrainIterSource:
    """A source over a Grain `MapDataset`, `IterDataset` or `DataLoader` whose elements are batches.

    A `MapDataset` has random access: any batch, several threads, exact resume. The other two are streams; they resume
    by Grain's own `get_state` and `set_state`, or, where no state was saved, by reading and dropping batches.

    Args:
      dataset: the Grain pipeline, with `.batch(n)` in it.

    Raises:
      ImportError: Grain is not installed.
      TypeError: `dataset` is none of the three.
    """
    try:
        grain = importlib.import_module("grain")
    except ImportError as error:
        raise ImportError("GrainSource needs Grain. Install it: pip install 'staging-tf1[grain]'") from error
    if isinstance(dataset, grain.MapDataset):
        return GrainMapSource(dataset)
    if isinstance(dataset, (grain.IterDataset, grain.DataLoader)):
        return GrainIterSource(dataset)
    wanted = "a grain.MapDataset, grain.IterDataset or grain.DataLoader"
    arguments.refuse("GrainSource", "dataset", dataset, wanted)


def is_grain(value: Any) -> bool:
    """Whether `value` is a Grain pipeline; does not import Grain."""
    names = {"MapDataset", "IterDataset", "DataLoader"}
    return any(c.__name__ in names and c.__module__.partition(".")[0] == "grain" for c in type(value).__mro__)


class GrainMapSource(Source):
    """Batches of a Grain `MapDataset`, which is random access throughout."""

    gives_away = False

    def __init__(self, dataset: Any) -> None:
        if not len(dataset):
            raise SpecError("GrainSource got an empty MapDataset.")
        self._dataset = dataset
        self._endless = len(dataset) >= sys.maxsize  # what Grain's repeat() without a number makes of the length
        self._first_lock = threading.Lock()
        self._spec: Any = None
        self._batch_size = 0

    def _resolve(self) -> None:
        with self._first_lock:
            if self._spec is None:
                first = _as_arrays(self._dataset[0], 0)
                self._batch_size = len(flatten(first)[0])
                self._spec = infer_spec(first)

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`, from batch 0, with the batch dimension open."""
        self._resolve()
        return self._spec

    @property
    def batch_size(self) -> int:
        """Records in batch 0."""
        self._resolve()
        return self._batch_size

    @property
    def num_records(self) -> None:
        """None: Grain counts elements, and these are batches."""
        return None

    @property
    def batches_per_epoch(self) -> int | None:
        """The dataset's length; None if it repeats without end."""
        return self.num_batches

    @property
    def num_batches(self) -> int | None:
        """The dataset's length; None if it repeats without end."""
        return None if self._endless else len(self._dataset)

    def batch(self, index: int) -> Any:
        """Element `index` of the dataset; see `Source.batch`."""
        index = arguments.index_below("GrainSource", index, self.num_batches)
        batch = _as_arrays(self._dataset[index], index)
        return pack(self.spec, conform(self.spec, batch, f"GrainSource: batch {index}"))

    def shard(self, index: int, count: int) -> GrainMapSource:
        """Every `count`-th batch. To deal out records, slice the dataset before its `batch`: `dataset[i::n].batch(b)`.

        Raises:
          ValueError: `index` is out of range, or the shard would have no batch.
        """
        index, count = arguments.shard("GrainSource", (index, count), len(self._dataset))
        return GrainMapSource(self._dataset[index::count])

    def fingerprint(self) -> dict[str, int | str]:
        """The number of batches and the size of the first; Grain does not tell its seed."""
        size = {"num_batches": self.num_batches or -1, "batch_size": self.batch_size}
        return {"source": "grain.MapDataset", **size, **BY_BATCHES}

    def __repr__(self) -> str:
        return f"GrainSource({self._dataset!r})"


class GrainIterSource(StreamSource):
    """Batches of a Grain `IterDataset` or `DataLoader`, whose iterators can tell and take back their state.

    `state(position)` gives the state after `position` batches as bytes, and `restore` takes it in another process:
    `staged()` keeps it in the checkpoint. Without it, `batches(start)` starts from the nearest state it knows and drops
    what lies between, which is exact, since Grain pipelines are deterministic, but takes the time of reading.
    """

    name = "grain"
    can_resume = True
    keeps_state = True

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._spec: Any = None
        self._states: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`, or None until `resolve_spec` or the first batch has told."""
        return self._spec

    def resolve_spec(self) -> Any:
        """The spec, from the first batch, which is read again when the batches are."""
        if self._spec is None:
            for batch in iter(self._dataset):
                self._spec = infer_spec(_as_arrays(batch, 0))
                break
            else:
                raise SpecError("GrainSource yielded no batch, so its dtypes and shapes are unknown.")
        return self._spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        """An iterator over the batches from number `start` on.

        Raises:
          StagingError: the pipeline does not take a state that was restored, so it is another one.
        """
        start = arguments.whole("GrainSource", "start", start, 0, arguments.INT64_MAX, "the number of a batch")
        iterator = iter(self._dataset)
        with self._lock:
            known = max((position for position in self._states if position <= start), default=0)
            state = self._states.get(known)
        if state is not None:
            try:
                iterator.set_state(_decoded(state))
            except Exception as error:
                raise StagingError(
                    f"GrainSource: the pipeline does not take back the state that it had after {known} batches: "
                    f"{type(error).__name__}: {error}. Build it as it was when the state was saved; or say "
                    f"staged(..., resume='ignore') to read and drop {start} batches instead, or resume='restart'."
                ) from error
        return self._deliver(iterator, known, start)

    def _deliver(self, iterator: Any, position: int, start: int) -> Iterator[Any]:
        for batch in iterator:
            position += 1
            self._remember(position, iterator.get_state())
            if position > start:
                arrays = _as_arrays(batch, position - 1)
                self._spec = self._spec or infer_spec(arrays)
                yield pack(self._spec, conform(self._spec, arrays, f"GrainSource: batch {position - 1}"))

    def _remember(self, position: int, state: Any) -> None:
        with self._lock:
            self._states[position] = _encoded(state)
            self._states.move_to_end(position)
            while len(self._states) > _STATES_KEPT:
                self._states.popitem(last=False)

    def state(self, position: int) -> bytes:
        """Grain's state after `position` batches.

        Raises:
          StagingError: that position was not reached, or was passed more than 1,024 batches ago.
        """
        position = arguments.whole("GrainSource", "position", position, 0, arguments.INT64_MAX, "consumed batches")
        with self._lock:
            if position not in self._states:
                known = f"{min(self._states)} to {max(self._states)}" if self._states else "none"
                raise StagingError(f"GrainSource knows no state for position {position}; it knows {known}.")
            return self._states[position]

    def restore(self, position: int, state: bytes) -> None:
        """Makes `batches(position)` start from a state that `state(position)` gave, perhaps in another process."""
        position = arguments.whole("GrainSource", "position", position, 0, arguments.INT64_MAX, "consumed batches")
        if not isinstance(state, bytes):
            arguments.refuse("GrainSource", "state", state, "the bytes that state(position) gave")
        with self._lock:
            self._states[position] = state

    def __repr__(self) -> str:
        return f"GrainSource({type(self._dataset).__name__})"


def _as_arrays(batch: Any, index: int) -> Any:
    if batch is None:
        raise SpecError(
            f"GrainSource: element {index} is None: filter() leaves such holes in a MapDataset. Use "
            f"dataset.to_iter_dataset(), which closes them, before batch()."
        )
    named = [
        (f"GrainSource: element {index}: {component_name(path)}", leaf) for path, leaf in flatten_with_paths(batch)
    ]
    arrays = pack(batch, [as_array(leaf, None, place) for place, leaf in named])
    if any(leaf.ndim == 0 for leaf in flatten(arrays)):
        described = map_structure(lambda leaf: ArraySpec(leaf.shape, leaf.dtype), arrays)
        raise SpecError(
            f"GrainSource: element {index} is {described}, one record; wanted batches. Write dataset.batch(n)."
        )
    return arrays


def _encoded(state: Any) -> bytes:
    return state if isinstance(state, bytes) else b"json:" + json.dumps(state, default=int).encode()


def _decoded(state: bytes) -> Any:
    return json.loads(state[5:]) if state.startswith(b"json:") else state
