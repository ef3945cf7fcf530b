"""The user's own training step as a workload: `staging-tf1 bench --train my_module:build`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from staging_tf1.bench.errors import BenchError
from staging_tf1.bench.workloads import split_own
from staging_tf1.bench.workloads.workload import Batch, Workload
from staging_tf1.sources import Source, StreamSource, as_source
from staging_tf1.spec import flatten, flatten_with_paths, pack

__all__ = ["OwnWorkload"]


class OwnWorkload(Workload):
    """A workload made from `build()`, which returns an endless source and a function that returns the train op.

    Its name is `module:function`; the module may be in the current folder.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._source, self._train = _build(name)
        self._structure = self._source.resolve_spec() if isinstance(self._source, StreamSource) else self._source.spec
        self.spec = {path: (spec.shape[1:], spec.dtype) for path, spec in flatten_with_paths(self._structure)}
        self.batch_size = self._records()

    def _records(self) -> int:
        """Return the number of records per batch; 0 if it is unknown in advance."""
        if isinstance(self._source, Source):
            return self._source.batch_size or 0
        shape = flatten(self._structure)[0].shape
        return (shape[0] or 0) if shape else 0

    @property
    def batch_dim(self) -> int | None:
        return None

    def open(self, records: int, folder: str) -> None:
        return None

    def batches(self, data: Any, seed: int) -> Iterator[Batch]:
        for batch in self._source.batches():
            yield dict(flatten_with_paths(batch))
        raise BenchError(f"{self.name} ran out of data during the measurement. Set epochs=None in its source.")

    def source(self, data: Any, seed: int, *, shuffle: bool = True) -> Source:
        source: Source = self._source
        return source

    def named(self, staged: Any) -> dict[str, Any]:
        return dict(flatten_with_paths(staged))

    def model(self, batch: dict[str, Any]) -> Any:
        fetches = self._train(pack(self._structure, [batch[path] for path in self.spec]))
        if fetches is None:
            raise BenchError(f"The train function of {self.name} returned None. Return the train op.")
        return fetches


def _build(name: str) -> tuple[Any, Callable[[Any], Any]]:
    module, function = split_own(name)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        build = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0] and error.name != module:
            raise
        raise BenchError(
            f"--train {name}: found no module {module!r} in {os.getcwd()} or in the installed packages."
        ) from None
    except AttributeError:
        raise BenchError(f"--train {name}: module {module!r} has no function {function!r}.") from None
    built = build()
    if not isinstance(built, tuple) or len(built) != 2 or not callable(built[1]):
        raise BenchError(f"--train {name}: {function}() returned {type(built).__name__}, expected (source, train).")
    return as_source(built[0]), built[1]
