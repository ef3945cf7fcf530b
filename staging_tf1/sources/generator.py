"""`GeneratorSource`: batches from generators and iterables, read in order."""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NoReturn

import numpy as np

from staging_tf1.arguments import batch_start, choice, instance, refuse, shown
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources.base import StreamSource
from staging_tf1.spec import as_leaf_spec, flatten_with_paths, infer_spec, map_structure, pack
from staging_tf1.spec.arrays import is_of_tensorflow, kind_of
from staging_tf1.spec.conform import Conformer


class GeneratorSource(StreamSource):
    """Batches from a generator, with the batch dimension first.

    The position of a generator cannot be saved. By default a run that resumes from a checkpoint therefore raises. With
    `resume="skip"` it reads and discards the batches that were consumed. This takes the time of reading them, and is
    exact only if the generator yields the same batches again.

    Args:
      generator_fn: a generator function (called for each pass), an iterable of batches (iterated for each pass), or a
        generator or iterator object, which can be read only once.
      spec: a nest of `tf.TensorSpec` or `ArraySpec`, batch dimension first (None where it varies). Sparse and ragged
        components have a `tf.SparseTensorSpec` or `tf.RaggedTensorSpec`. None infers the spec from the first batch.
      resume: "error", or "skip" to read and discard batches up to the saved position.
      name: the name of the source in messages. The default is the name of the function.

    Raises:
      TypeError: `generator_fn` cannot yield batches, or `spec` is invalid.
      ValueError: `resume` is not one of the choices.

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
        # Strings and dicts are iterables, but not of batches. A 0-d array has __iter__ but cannot be iterated.
        iterable = hasattr(generator_fn, "__iter__") and getattr(generator_fn, "ndim", 1) != 0
        iterable = iterable and not isinstance(generator_fn, (str, bytes, Mapping))
        if not callable(generator_fn) and not iterable:
            expected = "a generator function, a generator, or an iterable of batches"
            refuse("GeneratorSource", "generator_fn", generator_fn, expected)
        choice("GeneratorSource", "resume", resume, ("error", "skip"))
        instance("GeneratorSource", "name", name, str | None, "a string")
        self.name = name or _name_of(generator_fn)
        self._declared = spec is not None
        self._spec = None if spec is None else _check_spec(self._owner, spec)
        # Checks batches against the spec; made for the first one.
        self._conformer: Conformer | None = None
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
        """A nest of `ArraySpec`, or None if not declared and no batch has been read yet."""
        return self._spec

    def resolve_spec(self) -> Any:
        """Return the spec. If none was declared, read the first batch, which is kept and delivered first.

        Raises:
          SpecError: the generator yields no batch, or its first batch cannot be converted to arrays.
        """
        with self._lock:
            if self._spec is None:
                iterable = self._iterable()
                with _in_eager_mode_only(self._owner, iterable):
                    iterator = iter(iterable)
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
        """Return a source of the same batches with a declared spec. Reads nothing."""
        other = copy.copy(self)
        other._declared, other._spec, other._conformer = True, _check_spec(self._owner, spec), None
        return other

    def batches(self, start: int = 0) -> Iterator[Any]:
        """Return an iterator over the batches from `start` on. Each is checked against the spec.

        Raises:
          StagingError: `start` is not 0 and `resume` is "error", or a generator object is read a second time.
          SpecError: (while iterating) a batch does not match the spec.
        """
        start = batch_start(self._owner, start)
        if start and self._resume == "error":
            raise StagingError(
                f"{self._owner} cannot resume at batch {start}, because a generator can only be read from its "
                f"beginning. Use GeneratorSource(..., resume='skip') to read and discard {start} batches first, or a "
                "source with random access: ArraySource, TFRecordSource."
            )
        with self._lock:
            if self._peeked is not None:
                first, rest = self._peeked
                self._peeked = None
                iterator: Iterator[Any] = itertools.chain([first], rest)
            else:
                iterator = iter(self._iterable())
        return _Batches(iterator, start, self._fit, self._owner)

    def _iterable(self) -> Any:
        if self._once and (self._started or self._make in _BEGUN):
            raise StagingError(
                f"{self._owner} was already read, and a generator object can be read only once. Pass the generator "
                "*function* (without calling it), which can be called again."
            )
        self._started = True
        with contextlib.suppress(TypeError):  # an iterator that does not support weak references
            _BEGUN.add(self._make)
        iterable = self._make() if callable(self._make) else self._make
        if not hasattr(iterable, "__iter__"):
            raise TypeError(
                f"{self._owner} returned a {type(iterable).__name__}, expected an iterator over batches: use `yield`."
            )
        return iterable

    def _fit(self, number: int, batch: Any) -> Any:
        if self._spec is None:
            self._spec = infer_spec(batch, f"{self._owner}: the first batch")
        if self._conformer is None:
            self._conformer = Conformer(self._spec)
        try:
            return pack(self._spec, self._conformer.leaves(batch, f"{self._owner}: batch {number}"))
        except SpecError as error:
            if self._declared:
                raise
            raise SpecError(f"{error} No spec was declared, so the first batch set it.") from error

    def __repr__(self) -> str:
        return f"GeneratorSource({self.name})"


@contextlib.contextmanager
def _in_eager_mode_only(owner: str, iterable: Any) -> Iterator[None]:
    """Explain the errors that TensorFlow's objects raise when they are iterated while a graph is built."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        if not is_of_tensorflow(iterable):
            raise
        raise SpecError(
            f"{owner} gives {kind_of(iterable)}, whose elements have no values while a graph is built. Pass tensors, "
            f"or a tf.data.Dataset, to staged(); or store its records with staging_tf1.sources.cached()."
        ) from error


_END = object()
# Generator objects that a source reads. Two sources would each get only some of the batches.
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
                f"{owner}: spec{f' component {path!r}' if path else ''} is {shown(leaf)}; expected a tf.TensorSpec, "
                "for example tf.TensorSpec([None, 784], tf.float32), or a staging_tf1.spec.ArraySpec."
            )
    try:
        named = [as_leaf_spec(leaf, path or None) for path, leaf in flatten_with_paths(spec)]
    except ValueError as error:
        raise ValueError(f"{owner}: spec: {error}") from error
    return pack(map_structure(lambda leaf: None, spec), named)


class _Batches:
    """The batches from `start` on. No generator: after an exception it would end, and the iterator may go on."""

    def __init__(self, iterator: Iterator[Any], start: int, fit: Callable[[int, Any], Any], owner: str) -> None:
        self._iterator, self._start, self._fit, self._owner = iterator, start, fit, owner
        self._number = 0

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        while self._number < self._start:
            try:
                has_batch = next(self._iterator, _END) is not _END
            except Exception as error:
                self._refuse(f"raised {type(error).__name__} at batch {self._number}", error)
            if not has_batch:
                self._refuse(f"ended after {self._number} batches", None)
            self._number += 1
        batch = next(self._iterator)
        self._number += 1
        return self._fit(self._number - 1, batch)

    def _refuse(self, problem: str, error: Exception | None) -> NoReturn:
        # Also if this exception is ignored: what comes next is not batch `start`.
        start, self._start, self._iterator = self._start, 0, iter(())
        raise StagingError(
            f"{self._owner} {problem}, while skipping to batch {start} to resume there. Check that it yields as many "
            "batches as in the saved run."
        ) from error
