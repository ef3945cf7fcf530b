"""`GeneratorSource`: old generators and iterables of batches, read from front to back."""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from staging_tf1.arguments import INT64_MAX, choice, refuse, shown, whole
from staging_tf1.conform import conform
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources.base import StreamSource
from staging_tf1.spec import ArraySpec, flatten_with_paths, infer_spec, map_structure, pack

__all__ = ["GeneratorSource"]


class GeneratorSource(StreamSource):
    """Batches that a generator yields, each with the batch dimension first.

    A generator has no position that could be saved. A run that resumes therefore either stops with an error
    that says so, or reads and drops what was consumed (`resume="skip"`), which is exact only if the generator
    yields the same again, and costs the time of reading it.

    Args:
      generator_fn: a generator function (called anew for each pass), an iterable of batches (iterated anew),
        or a generator or iterator object, which can be read only once.
      spec: a nest of `tf.TensorSpec` or `ArraySpec`, batch dimension first (None where it varies). None takes
        it from the first batch.
      resume: "error", or "skip": read and drop batches until the position is reached.
      name: what messages call it; by default the function's name.

    Raises:
      TypeError: `generator_fn` yields nothing; or the spec holds what is no spec.
      ValueError: `resume` is another word.

    >>> source = GeneratorSource(lambda: ({"x": [i, i + 1]} for i in range(3)))
    >>> source.resolve_spec()
    {'x': ArraySpec(int64 [?], name='x')}
    >>> [batch["x"].tolist() for batch in source.batches()]
    [[0, 1], [1, 2], [2, 3]]
    """

    def __init__(
        self,
        generator_fn: Callable[[], Iterable[Any]] | Iterable[Any],
        *,
        spec: Any = None,
        resume: Literal["error", "skip"] = "error",
        name: str | None = None,
    ) -> None:
        # A string is an iterable, too, so are the keys of a dict; an array of no dimension only looks like one.
        iterable = hasattr(generator_fn, "__iter__") and getattr(generator_fn, "ndim", 1) != 0
        iterable = iterable and not isinstance(generator_fn, (str, bytes, Mapping))
        if not callable(generator_fn) and not iterable:
            wanted = "a generator function, a generator, or an iterable of batches"
            refuse("GeneratorSource", "generator_fn", generator_fn, wanted)
        choice("GeneratorSource", "resume", resume, ("error", "skip"))
        if name is not None and not isinstance(name, str):
            refuse("GeneratorSource", "name", name, "a string")
        self.name = name or _name_of(generator_fn)
        self._declared = spec is not None
        self._spec = None if spec is None else _check_spec(self._owner, spec)
        self._make = generator_fn
        self._resume = resume
        self.can_resume = resume == "skip"
        self._once = not callable(generator_fn) and isinstance(generator_fn, Iterator)
        self._started = False
        self._peeked: tuple[Any, Iterator[Any]] | None = None
        self._lock = threading.RLock()

    @property
    def _owner(self) -> str:
        return f"generator '{self.name}'"

    @property
    def spec(self) -> Any:
        """A nest of `ArraySpec`, or None until `resolve_spec` or the first batch has told."""
        return self._spec

    def resolve_spec(self) -> Any:
        """The spec, from the first batch where none was declared; that batch is kept and delivered first.

        Raises:
          SpecError: the generator ends without a batch, or its first one makes no arrays.
        """
        with self._lock:
            if self._spec is None:
                iterator = self._start()
                first = next(iterator, _END)
                if first is _END:
                    raise SpecError(
                        f"{self._owner} yielded no batch, so its dtypes and shapes are unknown. Declare "
                        "them: GeneratorSource(..., spec=...)."
                    )
                self._spec = infer_spec(first, f"{self._owner}: the first batch")
                self._peeked = (first, iterator)
            return self._spec

    def with_spec(self, spec: Any) -> GeneratorSource:
        """The same batches, declared to be as `spec` says; nothing is read."""
        other = copy.copy(self)
        other._declared, other._spec = True, _check_spec(self._owner, spec)
        return other

    def batches(self, start: int = 0) -> Iterator[Any]:
        """An iterator over the batches from number `start` on, each checked against the spec.

        Raises:
          StagingError: `start` is not 0 and `resume` is "error"; or a generator object is read a second time.
          SpecError: (while iterating) a batch does not fit the spec.
        """
        start = whole(self._owner, "start", start, 0, INT64_MAX, "the number of a batch")
        if start and self._resume == "error":
            raise StagingError(
                f"{self._owner} cannot continue at batch {start}: a generator has no position, it can only "
                "be read from its beginning. Say GeneratorSource(..., resume='skip') to read and drop "
                f"{start} batches first, or use a source with random access: ArraySource, TFRecordSource."
            )
        with self._lock:
            if self._peeked is not None:
                first, rest = self._peeked
                self._peeked = None
                iterator: Iterator[Any] = itertools.chain([first], rest)
            else:
                iterator = self._start()
        return self._checked(iterator, start)

    def _start(self) -> Iterator[Any]:
        if self._once and (self._started or self._make in _BEGUN):
            raise StagingError(
                f"{self._owner} was read already: a generator object can be read only once. Give the "
                "generator *function* (without calling it), so that it can be started anew."
            )
        self._started = True
        with contextlib.suppress(TypeError):  # an iterator that takes no weak reference
            _BEGUN.add(self._make)
        iterable = self._make() if callable(self._make) else self._make
        if not hasattr(iterable, "__iter__"):
            raise TypeError(
                f"{self._owner} returned a {type(iterable).__name__}, wanted an iterator over batches: use `yield`."
            )
        return iter(iterable)

    def _checked(self, iterator: Iterator[Any], start: int) -> Iterator[Any]:
        for number in range(start):
            if next(iterator, _END) is _END:
                raise StagingError(
                    f"{self._owner} ended after {number} batches while skipping to batch {start}, where the "
                    "run is to continue. Was it given less data than before?"
                )
        for number, batch in enumerate(iterator, start):
            if self._spec is None:
                self._spec = infer_spec(batch, f"{self._owner}: the first batch")
            yield self._fit(batch, number)

    def _fit(self, batch: Any, number: int) -> Any:
        owner = f"{self._owner}: batch {number}"
        try:
            return pack(self._spec, conform(self._spec, batch, owner))
        except SpecError as error:
            if self._declared:
                raise
            raise SpecError(
                f"{str(error).replace('declared', 'the first batch had')} No spec was declared, so the first "
                "batch set it."
            ) from error

    def __repr__(self) -> str:
        return f"GeneratorSource({self.name})"


_END = object()
# Generator objects that some source reads: a second source would take every other batch away from the first.
_BEGUN: weakref.WeakSet[Any] = weakref.WeakSet()


def _name_of(generator_fn: Any) -> str:
    for attribute in ("__qualname__", "__name__"):
        name = getattr(generator_fn, attribute, None)
        if isinstance(name, str):
            return name.rpartition("<locals>.")[2]
    return type(generator_fn).__name__


def _check_spec(owner: str, spec: Any) -> Any:
    if not flatten_with_paths(spec):
        refuse(owner, "spec", spec, "at least one tf.TensorSpec")
    for path, leaf in flatten_with_paths(spec):
        if isinstance(leaf, (np.ndarray, np.generic)) or not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
            raise TypeError(
                f"{owner}: spec{f' component {path!r}' if path else ''} is {shown(leaf)}; wanted a tf.TensorSpec, "
                "for example tf.TensorSpec([None, 784], tf.float32), or a staging_tf1.spec.ArraySpec."
            )
    named = [
        ArraySpec(leaf.shape, leaf.dtype, getattr(leaf, "name", None) or path or None)
        for path, leaf in flatten_with_paths(spec)
    ]
    return pack(map_structure(lambda leaf: None, spec), named)
