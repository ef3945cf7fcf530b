"""Compiled runs: a run with the same fetches as an earlier one does not parse them again.

`Session.run` parses its fetches and feeds in each call. In a small step this takes most of the time that is spent in
Python. What it finds out depends on the fetched objects alone, so the second run uses it. Values, errors and their
texts stay the same. A run that is often repeated becomes a callable of the C API, which saves the look-up of the
executors, too. It has executors of its own, in which functions of the graph would draw their random numbers from the
beginning. So a run that calls functions stays with the session's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import (
    CompiledRun,
    ParsedFetches,
    RefVariable,
    ResourceVariable,
    TensorHandle,
    as_feed_array,
    converted_number,
    has_handle_feeds,
    is_default,
    output_of,
    parsed_fetches,
    replaces_inner_run,
    run_parsed,
    tf,
    wrap_inner_runs,
)
from staging_tf1.graph.dependencies import ancestors, calls_functions, held_in

# The attribute of a session.
_RUNS = "_staging_tf1_compiled_runs"
# A loop repeats a few sets of fetches. If there are more than this, each run has new ones, which are not worth keeping.
_MOST = 1000
# The same for the sets of tensors that are fed to one set of fetches.
_MOST_FED = 10
# In a large graph a callable takes as long to make as some thousand runs save.
_RUNS_BEFORE = 100
# The executors of a callable have copies of the constants.
_MOST_CONSTANT_BYTES = 32 << 20
_ELEMENTS = (tf.Tensor, tf.Operation, tf.SparseTensor, tf.IndexedSlices, tf.RaggedTensor)

_all = False


def identity_of(fetches: Any) -> Any:
    """A key that is the same for the same objects in containers of the same kinds, while the objects live.

    Not by value: hashing a tensor costs more, and comparing two can make an op.
    """
    # The type() of a proxy, such as a dict in a tf.Module, would be that of the proxy.
    kind = fetches.__class__
    if kind is list or kind is tuple:
        return kind, *[identity_of(fetch) for fetch in fetches]
    if kind is dict:
        return kind, tuple(fetches), *[identity_of(fetch) for fetch in fetches.values()]
    if kind is str:
        return fetches
    held = held_in(kind)
    return id(fetches) if held is None else (kind, *[(name, identity_of(value)) for name, value in held(fetches)])


def compile_runs(session: Any) -> None:
    wrap_inner_runs(_run)
    _runs_of(session)


def compile_all_runs() -> None:
    global _all
    _all = True
    wrap_inner_runs(_run)


def _runs_of(session: Any) -> _CompiledRuns:
    runs: _CompiledRuns = vars(session).setdefault(_RUNS, _CompiledRuns())
    return runs


def _run(run: Callable[..., Any], session: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
    runs: _CompiledRuns | None = vars(session).get(_RUNS) or (_runs_of(session) if _all else None)
    if runs is None:
        return run(fetches, feed_dict, options, run_metadata)
    key = identity_of(fetches)
    known = runs.by_key.get(key)
    try:
        feeds = _NONE if known is None or not feed_dict else runs.feeds_of(feed_dict, session.graph, known.fetched)
    except _Unusual:
        return run(fetches, feed_dict, options, run_metadata)
    if known is None:
        result = run(fetches, feed_dict, options, run_metadata)
        runs.add(key, session, fetches)
        return result
    compiled = known.compiled(session, feeds.fed) if is_default(options) else None
    if compiled is not None:
        return compiled(session, feeds.arrays, run_metadata)
    outputs = {output_of(tensor): array for tensor, array in zip(feeds.fed, feeds.arrays, strict=True)}
    return run_parsed(session, known.parsed, outputs, options, run_metadata)


class _Unusual(Exception):
    """TensorFlow must parse these fetches or feeds: their kind is rare, or it has an error to raise."""


class _Feeds(NamedTuple):
    """The tensors that a run feeds, and their arrays."""

    fed: list[Any]
    arrays: list[np.ndarray[Any, Any]]


_NONE = _Feeds([], [])


class _Repeated:
    """The runs of some fetches that feed the same tensors. These are held, so that their ids stay their own."""

    def __init__(self, fed: list[Any]) -> None:
        self._fed = fed
        self.runs = 1
        self.compiled: CompiledRun | None = None


class _Known:
    """A run that has been made before.

    Args:
      parsed: its fetches, parsed.
      held: the fetched objects. Their ids are in the key.

    Attributes:
      fetched: the ids of the fetched tensors.
    """

    def __init__(self, parsed: ParsedFetches, held: list[Any]) -> None:
        self.parsed, self._held = parsed, held
        self.fetched = frozenset(map(id, parsed.handler.fetches()))
        self._is_light: bool | None = None
        # By the ids of what is fed.
        self._repeated: dict[tuple[int, ...], _Repeated] = {}

    def compiled(self, session: Any, fed: list[Any]) -> CompiledRun | None:
        """Return the callable that feeds `fed`; None if there is none, or none yet."""
        key = tuple(map(id, fed))
        repeated = self._repeated.get(key)
        if repeated is None:
            if len(self._repeated) < _MOST_FED:
                self._repeated[key] = _Repeated(fed)
            return None
        if repeated.compiled is None:
            repeated.runs += 1
            if repeated.runs > _RUNS_BEFORE and self._can_compile(session):
                repeated.compiled = CompiledRun(session, self.parsed, fed)
        return repeated.compiled

    def _can_compile(self, session: Any) -> bool:
        if self._is_light is None:
            handler = self.parsed.handler
            ops = list(ancestors([*handler.fetches(), *handler.targets()]))
            self._is_light = not calls_functions(ops) and sum(map(_constant_bytes, ops)) <= _MOST_CONSTANT_BYTES
        return self._is_light and not session.sess_str


def _constant_bytes(op: Any) -> int:
    return op.outputs[0].dtype.size * (op.outputs[0].shape.num_elements() or 0) if op.type == "Const" else 0


class _CompiledRuns:
    """The compiled runs of one session.

    Attributes:
      by_key: the runs, by the identity of their fetches.
    """

    def __init__(self) -> None:
        self.by_key: dict[Any, _Known] = {}
        # By the id of a fed tensor: it, so that the id stays its own, and its dtype in numpy.
        self._fed: dict[int, tuple[Any, Any]] = {}

    def add(self, key: Any, session: Any, fetches: Any) -> None:
        if replaces_inner_run(session):
            return
        held: list[Any] = []
        try:
            # TensorFlow's handler refers to the keys of a dict, which the caller may change.
            copied = _copied(fetches, held)
        except _Unusual:
            return
        parsed = parsed_fetches(session, copied)
        # If there is nothing to run, TensorFlow does nothing.
        if parsed.outputs or parsed.targets:
            if len(self.by_key) >= _MOST:
                self.by_key.clear()
            self.by_key[key] = _Known(parsed, held)

    def feeds_of(self, feed_dict: Any, graph: Any, fetched: frozenset[int]) -> _Feeds:
        """Return what to feed, converted and checked as `Session.run` does it.

        Raises:
          _Unusual: a value does not fit, or is no array.
        """
        if feed_dict.__class__ is not dict or has_handle_feeds(graph):
            raise _Unusual
        arrays = []
        for tensor, value in feed_dict.items():
            ident = id(tensor)
            # What is fed and fetched is not run.
            if ident in fetched or isinstance(value, (tf.Tensor, TensorHandle)):
                raise _Unusual
            _, dtype = self._fed.get(ident) or self._met(tensor, graph)
            try:
                fits = not isinstance(value, int) or converted_number(dtype, value) == value
                # TensorFlow's function takes 15 us.
                is_array = value.__class__ is np.ndarray and value.dtype == dtype
                array = value if is_array else as_feed_array(value, dtype)
            except Exception:
                raise _Unusual from None
            if not (fits and tensor.shape.is_compatible_with(array.shape) and graph.is_feedable(tensor)):
                raise _Unusual
            arrays.append(array)
        return _Feeds(list(feed_dict), arrays)

    def _met(self, tensor: Any, graph: Any) -> tuple[Any, Any]:
        if not isinstance(tensor, tf.Tensor) or tensor.graph is not graph:
            raise _Unusual
        if len(self._fed) >= _MOST:
            self._fed.clear()
        fed = self._fed[id(tensor)] = (tensor, tensor.dtype.as_numpy_dtype)
        return fed


@functools.lru_cache(maxsize=1000)
def _is_element(kind: type[Any]) -> bool:
    # An object of another kind may stand for another tensor each time.
    return issubclass(kind, _ELEMENTS) or kind in (RefVariable, ResourceVariable)


def _copied(fetches: Any, held: list[Any]) -> Any:
    """Copy the containers in `fetches`, and append the elements to `held`.

    Raises:
      _Unusual: some are of an unusual kind.
    """
    kind = fetches.__class__
    if kind is dict:
        return {name: _copied(fetch, held) for name, fetch in fetches.items()}
    if kind is list or kind is tuple:
        return kind(_copied(fetch, held) for fetch in fetches)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*[_copied(fetch, held) for fetch in fetches])
    if kind is not str and not _is_element(kind):
        raise _Unusual
    held.append(fetches)
    return fetches
