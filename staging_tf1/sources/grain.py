"""`GrainSource`: batches from Grain pipelines, an optional extra.

See https://google-grain.readthedocs.io. Grain is imported when the first source is created.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.sources.batches import Memo
from staging_tf1.sources.reshard import BY_BATCHES
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_with_paths, infer_spec, map_structure, pack
from staging_tf1.spec.arrays import as_array, is_named
from staging_tf1.spec.composite import as_composite, is_composite
from staging_tf1.spec.conform import conform

# States kept per source. More than the number of batches ever read ahead of the training step.
_STATES_KEPT = 1024


def GrainSource(dataset: Any) -> GrainMapSource | GrainIterSource:
    """Create a source from a Grain pipeline whose elements are batches: it must contain `.batch(n)`.

    A `MapDataset` has random access, so it supports several threads and exact resume. An `IterDataset` or `DataLoader`
    is a stream. It resumes with Grain's `get_state` and `set_state`. If no state was saved, it reads and discards
    batches.

    Worker processes, for work in Python: `staged(source, num_processes=...)` makes the batches of a `MapDataset` in
    memory that TensorFlow reads without a copy, and a run can continue with another number of processes. For an
    `IterDataset`, which has no random access because it filters, packs or mixes by the content of the records, use
    Grain's own `dataset.to_iter_dataset().mp_prefetch(options)`. Its batches are copied once more, and its state only
    fits the number of workers that it was saved with.

    Grain passes its records to the functions of `map` as they are. A function that changes one in place changes what
    later epochs get. So the first batch is read twice, and must have the same values both times.

    Raises:
      ImportError: Grain is not installed.
      StagingError: (when the first batch is read) it has other values when it is read again.
      TypeError: `dataset` is not a Grain pipeline.
    """
    try:
        grain = importlib.import_module("grain")
    except ImportError as error:
        raise ImportError("GrainSource needs Grain. Install it: pip install 'staging-tf1[grain]'") from error
    if isinstance(dataset, grain.MapDataset):
        return GrainMapSource(dataset)
    if isinstance(dataset, (grain.IterDataset, grain.DataLoader)):
        return GrainIterSource(dataset)
    expected = "a grain.MapDataset, grain.IterDataset or grain.DataLoader"
    arguments.refuse("GrainSource", "dataset", dataset, expected)


def is_grain(value: Any) -> bool:
    """Whether `value` is a Grain pipeline. Does not import Grain."""
    return is_named(type(value), "grain.MapDataset", "grain.IterDataset", "grain.DataLoader")


class GrainMapSource(Source):
    """Batches of a Grain `MapDataset`, with random access."""

    gives_away = False

    def __init__(self, dataset: Any) -> None:
        if not len(dataset):
            raise SpecError("GrainSource got an empty MapDataset.")
        self._dataset = dataset
        self._endless = len(dataset) >= sys.maxsize  # the length after Grain's repeat() without a number
        self._memo = Memo()

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`, inferred from batch 0. The batch dimension is None."""
        return self._memo.get("first", self._read_first)[0]

    @property
    def batch_size(self) -> int:
        """Records in batch 0."""
        size: int = self._memo.get("first", self._read_first)[1]
        return size

    def _read_first(self) -> tuple[Any, int]:
        first = _as_arrays(self._dataset[0], 0)
        digest = _digest(first)
        try:
            again = _digest(_as_arrays(self._dataset[0], 0))
        except Exception as error:
            raise _not_repeated(f"raised {type(error).__name__} when it was read again: {error}") from error
        _check_repeated(digest, again)
        return infer_spec(first), len(flatten(first)[0])

    @property
    def num_records(self) -> None:
        """Always None. Grain counts elements, and the elements are batches."""
        return None

    @property
    def batches_per_epoch(self) -> int | None:
        """The length of the dataset. None if it repeats without end."""
        return self.num_batches

    @property
    def num_batches(self) -> int | None:
        """The length of the dataset. None if it repeats without end."""
        return None if self._endless else len(self._dataset)

    def batch(self, index: int) -> Any:
        """Return element `index` of the dataset. See `Source.batch`."""
        index = arguments.index_below("GrainSource", index, self.num_batches)
        batch = _as_arrays(self._dataset[index], index)
        return pack(self.spec, conform(self.spec, batch, f"GrainSource: batch {index}"))

    def shard(self, index: int, count: int) -> GrainMapSource:
        """Return the source of every `count`-th batch, starting with batch `index`.

        To shard records instead of batches, slice the dataset before its `batch`: `dataset[i::n].batch(b)`.

        Raises:
          ValueError: `index` is out of range, or the shard would have no batch.
        """
        index, count = arguments.shard("GrainSource", (index, count), len(self._dataset))
        return GrainMapSource(self._dataset[index::count])

    def fingerprint(self) -> dict[str, int | str]:
        """Return the number of batches and the size of the first. Grain does not expose its seed."""
        size = {"num_batches": self.num_batches or -1, "batch_size": self.batch_size}
        return {"source": "grain.MapDataset", **size, **BY_BATCHES}

    def __repr__(self) -> str:
        return f"GrainSource({self._dataset!r})"


class GrainIterSource(StreamSource):
    """Batches of a Grain `IterDataset` or `DataLoader`.

    Their iterators can save and restore their state. `state(position)` returns the state after `position` batches as
    bytes, which `restore` accepts in any process. `staged()` stores it in the checkpoint. Without a saved state,
    `batches(start)` starts from the nearest known state and discards the batches up to `start`. This is exact, because
    Grain pipelines are deterministic, but takes the time of reading them.
    """

    name = "grain"
    can_resume = True
    keeps_state = True

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._spec: Any = None
        # That of the first batch, until it is delivered.
        self._first: str | None = None
        self._states: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`, or None if no batch has been read yet."""
        return self._spec

    def resolve_spec(self) -> Any:
        """Return the spec of the first batch. `batches` reads that batch again."""
        if self._spec is None:
            for batch in iter(self._dataset):
                first = _as_arrays(batch, 0)
                self._spec, self._first = infer_spec(first), _digest(first)
                break
            else:
                raise SpecError("GrainSource yielded no batch, so its dtypes and shapes are unknown.")
        return self._spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        """Return an iterator over the batches from `start` on.

        Raises StagingError if the pipeline differs from the one whose state was saved, and rejects it.
        """
        start = arguments.batch_start("GrainSource", start)
        iterator = iter(self._dataset)
        with self._lock:
            known = max((position for position in self._states if position <= start), default=0)
            state = self._states.get(known)
        if state is not None:
            try:
                iterator.set_state(_decoded(state))
            except Exception as error:
                raise StagingError(
                    f"GrainSource: the pipeline rejected its state after {known} batches: {type(error).__name__}: "
                    f"{error}. Build the pipeline as it was when the state was saved; or use staged(..., "
                    f"resume='ignore') to read and discard {start} batches instead, or resume='restart'."
                ) from error
        return self._deliver(iterator, known, start)

    def _deliver(self, iterator: Any, position: int, start: int) -> Iterator[Any]:
        for batch in iterator:
            position += 1
            self._remember(position, iterator.get_state())
            if position > start:
                arrays = _as_arrays(batch, position - 1)
                if position == 1 and self._first is not None:
                    _check_repeated(self._first, _digest(arrays))
                    self._first = None
                self._spec = self._spec or infer_spec(arrays)
                yield pack(self._spec, conform(self._spec, arrays, f"GrainSource: batch {position - 1}"))

    def _remember(self, position: int, state: Any) -> None:
        with self._lock:
            self._states[position] = _encoded(state)
            self._states.move_to_end(position)
            while len(self._states) > _STATES_KEPT:
                self._states.popitem(last=False)

    def state(self, position: int) -> bytes:
        """Return Grain's state after `position` batches, of the last 1,024. Otherwise raises StagingError."""
        position = _checked_position(position)
        with self._lock:
            if position not in self._states:
                known = f"{min(self._states)} to {max(self._states)}" if self._states else "none"
                raise StagingError(f"GrainSource has no state for position {position}; known positions: {known}.")
            return self._states[position]

    def restore(self, position: int, state: bytes) -> None:
        """Make `batches(position)` start from a result of `state(position)`, possibly from another process."""
        position = _checked_position(position)
        arguments.instance("GrainSource", "state", state, bytes, "the bytes returned by state(position)")
        with self._lock:
            self._states[position] = state

    def __repr__(self) -> str:
        return f"GrainSource({type(self._dataset).__name__})"


def _digest(batch: Any) -> str:
    """Return a text that differs if the arrays of two batches do."""
    digest = hashlib.blake2b(digest_size=12)
    for leaf in flatten(batch):
        if isinstance(leaf, np.ndarray):
            digest.update(repr(leaf.tolist()).encode() if leaf.dtype.hasobject else leaf.tobytes())
    return digest.hexdigest()


def _check_repeated(first: str, again: str) -> None:
    if first != again:
        raise _not_repeated("has other values when it is read again")


def _not_repeated(problem: str) -> StagingError:
    return StagingError(
        f"GrainSource: element 0 {problem}. A function of the pipeline changes its record in place, as `record['x'] /= "
        f"255` does, or draws random numbers of its own. Change a copy of the record, and draw from the generator that "
        f"random_map() passes."
    )


def _checked_position(position: Any) -> int:
    return arguments.whole("GrainSource", "position", position, 0, arguments.INT64_MAX, "consumed batches")


def _as_arrays(batch: Any, index: int) -> Any:
    if batch is None:
        raise SpecError(
            f"GrainSource: element {index} is None: filter() leaves gaps in a MapDataset. Call "
            f"dataset.to_iter_dataset(), which removes them, before batch()."
        )
    named = [
        (f"GrainSource: element {index}: {component_name(path)}", leaf) for path, leaf in flatten_with_paths(batch)
    ]
    arrays = pack(batch, [_as_leaf(leaf, where) for where, leaf in named])
    if any(isinstance(leaf, np.ndarray) and leaf.ndim == 0 for leaf in flatten(arrays)):
        described = map_structure(_described, arrays)
        raise SpecError(
            f"GrainSource: element {index} is {described}, one record; expected batches. Use dataset.batch(n)."
        )
    return arrays


def _as_leaf(leaf: Any, where: str) -> Any:
    return as_composite(leaf)._checked(where) if is_composite(leaf) else as_array(leaf, None, where)


def _described(leaf: Any) -> Any:
    return leaf._spec(None) if is_composite(leaf) else ArraySpec(leaf.shape, leaf.dtype)


def _encoded(state: Any) -> bytes:
    return state if isinstance(state, bytes) else b"json:" + json.dumps(state, default=int).encode()


def _decoded(state: bytes) -> Any:
    return json.loads(state[5:]) if state.startswith(b"json:") else state
