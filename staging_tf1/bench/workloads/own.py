"""The user's own training step as a workload: `staging-tf1 bench --train my_module:build`.

`build()` returns (source, train), or `build(**feeding)` calls `staged(source, **feeding)` itself and returns the train
op.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench import BenchError, NotApplicable
from staging_tf1.bench.workloads import no_module, split_own
from staging_tf1.bench.workloads.workload import Batch, Workload
from staging_tf1.define.parallel import check_in_processes
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import Source, StreamSource, as_source
from staging_tf1.spec import flatten, flatten_with_paths, pack
from staging_tf1.user_module import NoSuchModule, user_module

__all__ = ["OwnGraph", "OwnWorkload", "load_own"]

# The arguments for a `build` that stages its input itself, one at a time.
_FEEDING = ("num_threads", "num_processes")


def load_own(name: str) -> Workload:
    """Return the workload of a name `module:function`; the module may be in the current folder.

    Raises BenchError if there is no such function, or if it takes or returns something else.
    """
    build = _function(name)
    return OwnGraph(name, build) if _stages_itself(name, build) else OwnWorkload(name, build)


class OwnWorkload(Workload):
    """A workload made from `build()`, which returns an endless source and a function that returns the train op."""

    def __init__(self, name: str, build: Callable[[], Any]) -> None:
        self.name = name
        self._source, self._train = _source_and_train(name, build)
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

    def own_step(self, feeding: Mapping[str, int]) -> None:
        if "num_processes" in feeding:
            try:
                check_in_processes("staged()", [self._source])
            except TypeError as error:
                raise NotApplicable(str(error)) from error

    def named(self, staged: Any) -> dict[str, Any]:
        return dict(flatten_with_paths(staged))

    def model(self, batch: dict[str, Any]) -> Any:
        fetches = self._train(pack(self._structure, [batch[path] for path in self.spec]))
        if fetches is None:
            raise BenchError(f"The train function of {self.name} returned None. Return the train op.")
        return fetches


class OwnGraph(Workload):
    """A workload made from `build(**feeding)`, which calls `staged(..., **feeding)` and returns the train op."""

    def __init__(self, name: str, build: Callable[..., Any]) -> None:
        self.name, self._build = name, build

    def open(self, records: int, folder: str) -> None:
        return None

    def batches(self, data: Any, seed: int) -> Iterator[Batch]:
        raise NotApplicable(f"{self.name} stages its input itself. Let build() return (source, train) to compare it")

    def source(self, data: Any, seed: int, *, shuffle: bool = True) -> Source:
        raise NotApplicable(f"{self.name} stages its input itself")

    def own_step(self, feeding: Mapping[str, int]) -> Any:
        try:
            fetches = self._build(**feeding)
        except TypeError as error:
            if "num_processes" in feeding and "got num_processes=" in str(error):
                raise NotApplicable(str(error)) from error
            raise
        words = ", ".join(f"{name}={value}" for name, value in feeding.items())
        function = split_own(self.name)[1]
        if fetches is None or isinstance(fetches, (Source, StreamSource)) or _is_pair(fetches):
            raise BenchError(
                f"--train {self.name}: {function}({words}) returned {type(fetches).__name__}, expected the train op. A "
                f"function that takes {' and '.join(_FEEDING)} calls staged(source, ...) itself."
            )
        producers = [producer for pipeline in pipelines_of(tf.get_default_graph()) for producer in pipeline.producers]
        for argument, value in feeding.items():
            got = sorted({getattr(producer, argument) for producer in producers})
            if value not in got:
                problem = (
                    f"made a pipeline with {argument}={got[0]}" if got else "called no staged() and no CustomRunner"
                )
                raise BenchError(
                    f"--train {self.name}: {function}({words}) {problem}. Pass its arguments on: "
                    f"def {function}(**feeding): ... staged(source, **feeding)."
                )
        return fetches

    def model(self, batch: dict[str, Any]) -> Any:
        raise NotApplicable(f"{self.name} stages its input itself")


def _function(name: str) -> Callable[..., Any]:
    module, function = split_own(name)
    try:
        build = getattr(user_module(module), function)
    except NoSuchModule:
        raise no_module(name) from None
    except AttributeError:
        raise BenchError(f"--train {name}: module {module!r} has no function {function!r}.") from None
    if not callable(build):
        raise BenchError(f"--train {name}: {function} is {type(build).__name__}, expected a function.")
    result: Callable[..., Any] = build
    return result


def _stages_itself(name: str, build: Callable[..., Any]) -> bool:
    """Whether `build` takes `num_threads` and `num_processes`. Raises BenchError if it takes something else."""
    parameters = inspect.signature(build).parameters
    takes = [name for name in _FEEDING if name in parameters]
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    needed = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty and parameter.kind < parameter.VAR_KEYWORD
    ]
    needed = [name for name in needed if parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL]
    if needed or (takes and not open_ended and len(takes) < len(_FEEDING)):
        shown = f"{split_own(name)[1]}{inspect.signature(build)}"
        raise BenchError(
            f"--train {name}: {shown} must take no arguments and return (source, train), or take num_threads=1 and "
            f"num_processes=0, or **feeding, and return the train op."
        )
    return bool(takes) or open_ended


def _source_and_train(name: str, build: Callable[[], Any]) -> tuple[Any, Callable[[Any], Any]]:
    built = build()
    if not _is_pair(built):
        raise BenchError(
            f"--train {name}: {split_own(name)[1]}() returned {type(built).__name__}, expected (source, train)."
        )
    return as_source(built[0]), built[1]


def _is_pair(built: Any) -> bool:
    return isinstance(built, tuple) and len(built) == 2 and callable(built[1])
