"""Moves sources to worker processes: large arrays in memory that all of them share, the rest pickled.

Arrays of `np.memmap` and record files are opened again by each worker.
"""

from __future__ import annotations

import copy
import functools
import io
import mmap
import os
import pickle
import random
import struct
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.sources.files.mapped import file_of, identity_of
from staging_tf1.workers.arena import rounded
from staging_tf1.workers.by_value import ByValuePickler, learn, numbered

__all__ = ["Shipment", "check_picklable", "culprit_of", "unloaded"]

# Smaller arrays are pickled, so that millions of them do not become as many buffers.
_FROM_BYTES = 4 << 10
_HEAD = struct.Struct("<QQ")
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())
_RANDOM = (np.random.Generator, np.random.RandomState, random.Random)


class Shipment:
    """Sources in shared memory without a name, which the kernel frees when the last process has closed it.

    An array that several sources have is moved once. Several pools use it: it is made for the first, and closed by the
    last. Thread-safe.

    Args:
      sources: the sources.
      users: how many pools will call `close`.
    """

    def __init__(self, sources: Sequence[Source], users: int = 1) -> None:
        self._sources, self._users = sources, users
        self._descriptor = -1
        self._lock = threading.Lock()

    @property
    def descriptor(self) -> int:
        """The file to pass to a worker. It stays open until all users have closed the shipment."""
        with self._lock:
            if self._descriptor < 0:
                self._descriptor = _shipped(self._sources)
            return self._descriptor

    def close(self) -> None:
        """Release the shipment for one user. The last one closes it."""
        with self._lock:
            self._users -= 1
            if not self._users and self._descriptor >= 0:
                os.close(self._descriptor)


def _shipped(sources: Sequence[Source]) -> int:
    """Write sources to a file in memory: a head, the spans of the large arrays, the pickled rest, the arrays."""
    payload, buffers, _ = _pickled(list(sources))
    end = _HEAD.size + 16 * len(buffers) + len(payload)
    spans = []
    for buffer in buffers:
        spans.append((rounded(end), buffer.nbytes))
        end = sum(spans[-1])
    descriptor = os.memfd_create("staging_tf1 source")
    try:
        os.ftruncate(descriptor, end)
        with mmap.mmap(descriptor, end) as mapped:
            mapped.write(_HEAD.pack(len(buffers), len(payload)))
            mapped.write(np.array(spans, np.uint64).tobytes())
            mapped.write(payload)
            for (begin, nbytes), buffer in zip(spans, buffers):
                mapped[begin : begin + nbytes] = buffer
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unloaded(descriptor: int) -> list[Source]:
    """Return the sources of a shipment, in a worker. Closes the descriptor. Shared arrays are read-only."""
    mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    os.close(descriptor)
    count, length = _HEAD.unpack_from(mapped)
    spans = np.frombuffer(mapped, np.uint64, 2 * count, _HEAD.size).reshape(-1, 2).tolist()
    begin = _HEAD.size + 16 * count
    shared = np.frombuffer(mapped, np.uint8)
    buffers = [shared[start : start + nbytes] for start, nbytes in spans]
    sources: list[Source]
    sources, known = pickle.loads(shared[begin : begin + length].data, buffers=buffers)
    learn(known)
    return sources


def check_picklable(caller: str, source: Source) -> str | None:
    """Raise TypeError, naming the attribute, if a source cannot be moved to another process. `caller` is for messages.

    Returns a warning if the source has random generators, which would be the same in all processes; else None.
    """
    try:
        has_random = _pickled(source).random
    except Exception as error:
        path, value = culprit_of(source, type(source).__name__, _can_be_pickled)
        raise TypeError(
            f"{caller} got num_processes= with a source that cannot be moved to another process: {path} is "
            f"{_named(value)} ({type(error).__name__}: {error}). Create it in the function that uses it, or use "
            f"num_threads= instead."
        ) from error
    return _random_in(caller, source) if has_random else None


def _random_in(caller: str, source: Source) -> str:
    path, value = culprit_of(source, type(source).__name__, _has_no_random)
    return (
        f"{caller} got num_processes= with a source that has a random generator: {path} is {_named(value)}. Each "
        f"process has a copy of it, so batches of several processes have the same random numbers. Use a transform with "
        f"two arguments, transform(batch, rng), or make the generator from the number of the batch."
    )


def _named(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__name__}"


def _has_no_random(value: Any) -> bool:
    try:
        return not _pickled(value).random
    except Exception:
        return True


def _can_be_pickled(value: Any) -> bool:
    try:
        _pickled(value)
    except Exception:
        return False
    return True


class _Pickled(NamedTuple):
    payload: bytes
    buffers: list[memoryview]
    # Whether there are random generators.
    random: bool


def _pickled(value: Any) -> _Pickled:
    file = io.BytesIO()
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _FROM_BYTES:
            return True
        buffers.append(raw)
        return False

    pickler = _Shipping(file, 5, keep)
    # Pickling the value fills the list.
    pickler.dump((value, pickler.classes))
    return _Pickled(file.getvalue(), buffers, pickler.random)


class _Shipping(ByValuePickler):
    """Pickles what is defined in the main program by value, so that workers need not run it again.

    Attributes:
      classes: those classes, with their numbers.
      random: whether there are random generators.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.classes: list[tuple[int, type]] = []
        self.random = False

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is _LOCK:
            return threading.Lock, ()
        if kind is _RLOCK:
            return threading.RLock, ()
        if kind is threading.local:
            return threading.local, ()
        if isinstance(value, _RANDOM):
            self.random = True
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return _reduced_array(value)
        if isinstance(value, (Source, StreamSource)) and value.features is not None:
            # Only the graph needs them, and a worker should not import TensorFlow for their classes.
            value = copy.copy(value)
            value.features = None
            return value.__reduce_ex__(5)
        reduced = super().reducer_override(value)
        if isinstance(value, type) and reduced is not NotImplemented:
            self.classes.append((numbered(value), value))
        return reduced


def _reduced_array(array: np.ndarray[Any, Any]) -> Any:
    mapped = _file_of(array)
    if mapped is not None and not _order(array):
        return _view_of, (mapped, _address(array) - _address(mapped), array.dtype, array.shape, array.strides)
    if mapped is not None:
        offset = mapped.offset + _address(array) - _address(mapped)
        path = os.path.abspath(str(mapped.filename))
        return _opened, (path, int(offset), array.dtype, array.shape, _order(array), identity_of(path))
    if type(array) is np.ndarray and not _order(array):
        return np.ascontiguousarray(array).__reduce_ex__(5)
    return NotImplemented


def _file_of(array: Any) -> Any | None:
    """Return the `np.memmap` of a whole file that holds an array; None if there is none, or it has private changes."""
    base = file_of(array)
    return base if base is not None and _order(base) and base.nbytes else None


def _order(array: np.ndarray[Any, Any]) -> str:
    """Return the order of an array without gaps, "C" or "F"; empty for one with gaps."""
    return "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else ""


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _opened(
    path: str, offset: int, dtype: Any, shape: tuple[int, ...], order: Any, identity: tuple[int, int] | None
) -> np.ndarray[Any, Any]:
    if 0 in shape:
        return np.empty(shape, dtype)
    if identity_of(path) != identity:
        # Otherwise a worker that replaces another one would mix two files in one epoch.
        raise RecordFileError(
            f"the file '{path}', which the source maps, was replaced or removed since the first worker process was "
            f"started. Start the program again, and write new data to a new path."
        )
    # A plain array: indexing a memmap makes one for each batch, in Python.
    return np.asarray(np.memmap(path, dtype, "r", offset, shape, order))


def _view_of(mapped: np.ndarray[Any, Any], offset: int, dtype: Any, shape: Any, strides: Any) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, mapped.reshape(-1, order="A").view(np.uint8), offset, strides)


# An object graph may be deeper, but nobody reads a longer path.
_DEEPEST = 12


def culprit_of(value: Any, path: str, can_be_pickled: Callable[[Any], bool]) -> tuple[str, Any]:
    """Return the path to the innermost part of `value` that cannot be pickled, and that part.

    >>> import pickle
    >>> def picklable(value):
    ...     try:
    ...         return bool(pickle.dumps(value))
    ...     except Exception:
    ...         return False
    >>> culprit_of({"a": [1, print, (n for n in ())]}, "value", picklable)[0]
    "value['a'][2]"
    """
    for _ in range(_DEEPEST):
        for part_path, part in _parts(value, path):
            if not can_be_pickled(part):
                path, value = part_path, part
                break
        else:
            break
    return path, value


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"{path}[{number}]", part) for number, part in enumerate(value))
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield from _parts(value.args, f"{path}.args")
        yield from _parts(value.keywords, f"{path}.keywords")
    elif isinstance(value, types.MethodType):
        yield path.rpartition(".")[0] or path, value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _used_by(value, path)
    else:
        yield from ((f"{path}.{name}", part) for name, part in getattr(value, "__dict__", {}).items())


def _used_by(function: types.FunctionType, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the closure variables, the globals and the defaults of a function."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f"{path} (its variable '{name}')", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f"{path} (the global '{name}')", function.__globals__[name]
    for name, default in zip(("its default",) * len(function.__defaults__ or ()), function.__defaults__ or ()):
        yield f"{path} ({name})", default
