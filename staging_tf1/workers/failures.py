"""Exceptions of a worker's source in the training process: of the same type, with the worker's traceback as text."""

from __future__ import annotations

import builtins
import contextlib
import io
import pickle
import traceback
import types
from typing import Any, cast

from staging_tf1.errors import SourceError
from staging_tf1.workers.by_value import ByValuePickler, class_of, number_of

__all__ = ["CannotStart", "WorkerTraceback", "cannot_load", "cannot_start", "described", "raised"]

# Python 3.10 has no groups.
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
# The flag of classes that were made at run time, by a `class` statement or in C.
_HEAP_TYPE = 1 << 9


class CannotStart(SourceError):
    """No worker can load the source, so there will be no batch."""


def cannot_start(owner: str, error: Exception, action: str = "start worker processes") -> CannotStart:
    """Return the error of a pool without workers, or without memory for batches, after `error` was raised."""
    if isinstance(error, OSError):
        cure = "Raise the limits of open files (ulimit -n), processes (ulimit -u) and memory, or lower num_processes."
    else:
        cure = "A source must not be changed to one that cannot be pickled after staged()."
    return CannotStart(f"'{owner}': cannot {action}: {type(error).__name__}: {str(error).rstrip('.')}. {cure}")


def cannot_load(worker: str, error: BaseException) -> CannotStart:
    """Return the error of a worker that raised `error` when it loaded the source."""
    cannot = CannotStart(
        f"worker process '{worker}' cannot load the source: {type(error).__name__}: {str(error).rstrip('.')}. A worker "
        f"imports the modules that the source was defined in, with this process's sys.path and working directory. Fix "
        f"that exception, or use num_threads= instead."
    )
    cannot.__cause__ = error.__cause__
    return cannot


class WorkerTraceback(Exception):
    """The traceback in the worker process, as text: the `__cause__` of an exception raised there.

    The text has the causes of the exception, too.
    """

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def described(error: BaseException) -> bytes:
    """Pickle an exception, and its traceback and causes as text.

    Its constructor and its `__reduce__` are not used, as they may take other arguments than `args`. Values that cannot
    be pickled become their texts.
    """
    text = "".join(traceback.format_exception(error))
    pickled = b""
    with contextlib.suppress(Exception):
        pickled = _pickled(error)
    return pickle.dumps((pickled, f"{type(error).__name__}: {_text(error, str)}", text))


def raised(payload: bytes, worker: str) -> BaseException:
    """Return the exception of `described`; a SourceError that names its type if it cannot be made here."""
    pickled, message, text = pickle.loads(payload)
    error: BaseException = SourceError(f"the source raised, in a worker process: {message}")
    # Its class may not load here.
    with contextlib.suppress(Exception):
        error = pickle.loads(pickled)
    error.__cause__ = WorkerTraceback(f"in worker process '{worker}':\n{text}")
    return error


class _Pickler(ByValuePickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, io.IOBase):
            raise pickle.PicklingError("cloudpickle would read the rest of the file")
        if isinstance(value, BaseException):
            return _remade, _state(value)
        if isinstance(value, type) and (number := number_of(value)) is not None:
            return class_of, (number,)
        return super().reducer_override(value)


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, 5).dump(value)
    return file.getvalue()


def _sent(value: Any) -> bytes:
    try:
        pickled = _pickled(value)
        pickle.loads(pickled)
        return pickled
    except Exception:
        return pickle.dumps(_text(value, repr))


def _text(value: Any, show: Any) -> str:
    try:
        return str(show(value))
    except Exception as failure:
        return f"(its text raises {type(failure).__name__})"


def _state(error: BaseException) -> tuple[Any, ...]:
    """Return the arguments of `_remade`. Each value is pickled by itself, so a bad one costs no other."""
    members = {}
    for name, member in _members(type(error)).items():
        # An attribute that was never set, or does not apply to this error.
        with contextlib.suppress(AttributeError):
            members[name] = _sent(member.__get__(error))
    attributes = {name: _sent(value) for name, value in vars(error).items()}
    group = (error.message, list(error.exceptions)) if isinstance(error, _GROUP) else ()
    return type(error), group, list(map(_sent, error.args)), members, attributes


def _remade(
    kind: Any, group: Any, args: list[bytes], members: dict[str, bytes], attributes: dict[str, bytes]
) -> BaseException:
    native = kind
    while native.__flags__ & _HEAP_TYPE:
        native = native.__base__
    error: Any = native.__new__(kind, *group)
    known = _members(kind)
    for name, pickled in members.items():
        with contextlib.suppress(Exception):  # read-only, or it does not load here
            value = pickle.loads(pickled)
            # An OSError whose file name was set to None says "None".
            if value is not None or known[name].__objclass__.__flags__ & _HEAP_TYPE:
                known[name].__set__(error, value)
    for name, pickled in attributes.items():
        with contextlib.suppress(Exception):
            vars(error)[name] = pickle.loads(pickled)
    # Past a `__setattr__` of its class.
    BaseException.args.__set__(error, tuple(map(pickle.loads, args)))  # type: ignore[attr-defined]
    return cast(BaseException, error)


def _members(kind: type) -> dict[str, Any]:
    """Return what an exception holds besides `args` and its `__dict__`: `__slots__`, and fields of C."""
    return {
        name: member
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType))
        and name != "args"
        and not name.startswith("__")
    }
