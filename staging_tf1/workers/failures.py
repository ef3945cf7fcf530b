"""Exceptions of a worker's source in the training process: of the same type, with the worker's traceback."""

from __future__ import annotations

import builtins
import contextlib
import io
import pickle
import sys
import traceback
import types
from typing import Any

from staging_tf1.errors import SourceError
from staging_tf1.workers.by_value import ByValuePickler, class_of, number_of

__all__ = ["CannotStart", "WorkerTraceback", "cannot_start", "described", "raised"]

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
    return CannotStart(f"'{owner}': cannot {action}: {type(error).__name__}: {error}. {cure}")


class WorkerTraceback(Exception):
    """The traceback in the worker process, as text: the `__cause__` of an exception raised there.

    If that exception has a cause or context, this is the `__cause__` of the first in the chain.
    """

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def described(error: BaseException) -> bytes:
    """Pickle an exception with its causes, and its traceback as text.

    Its constructor and its `__reduce__` are not used, as they may take other arguments than `args`. Values that cannot
    be pickled become `Unsent`.
    """
    text = "".join(traceback.format_exception(error))
    payload = b""
    for pickler in (_Failure, _PlainFailure):
        file = io.BytesIO()
        try:
            pickler(file, 5).dump(error)
            if type(pickle.loads(file.getvalue())) is type(error):
                payload = file.getvalue()
                break
        except Exception:
            continue
    return pickle.dumps((payload, f"{type(error).__name__}: {_text(error, str)}", text))


def raised(payload: Any, worker: str) -> BaseException:
    """Return the exception of `described`; a SourceError that names its type if it cannot be made here."""
    pickled, message, text = pickle.loads(payload)
    loaded: Any = None
    # Its class, or that of a value, may not load here.
    with contextlib.suppress(Exception):
        loaded = pickle.loads(pickled)
    lost = SourceError(f"the source raised, in a worker process: {message}")
    error = loaded if isinstance(loaded, BaseException) else lost
    _first(error).__cause__ = WorkerTraceback(f"in worker process '{worker}':\n{text}")
    return error


def _first(error: BaseException) -> BaseException:
    """Return the exception that a traceback of `error` would begin with."""
    seen = {id(error)}
    while True:
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None or id(before) in seen:
            return error
        seen.add(id(before))
        error = before


class Unsent:
    """Replaces a value of an exception that cannot leave its worker process. It is printed like the value."""

    def __init__(self, shown: str, text: str) -> None:
        self._shown, self._text = shown, text

    def __repr__(self) -> str:
        return self._shown

    def __str__(self) -> str:
        return self._text

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no attribute {name!r}: the value could not be moved from the worker process")


class _Failure(ByValuePickler):
    """Pickles an exception by its state, with the values that it holds."""

    _with_causes = True
    # How many exceptions, such as those of a chain, may be nested.
    _left = sys.maxsize

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, BaseException) and self._left:
            self._left -= 1
            group = (value.message, list(value.exceptions)) if isinstance(value, _GROUP) else ()
            return _without_init, (type(value), *group), _state(value, self._with_causes), None, None, _restore
        if isinstance(value, type) and (number := number_of(value)) is not None:
            return class_of, (number,)
        if isinstance(value, (type, types.FunctionType, types.CodeType)):
            return super().reducer_override(value)
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, io.IOBase):  # of which cloudpickle would read the rest
            return _unsent(value)
        reduce = self.dispatch_table.get(type(value))
        try:
            return value.__reduce_ex__(5) if reduce is None else reduce(value)
        except Exception:
            return _unsent(value)


class _PlainFailure(_Failure):
    """The same without other objects, which may be pickled and yet not load, and with few nested exceptions."""

    _with_causes = False
    _left = 50

    def _value(self, value: Any) -> Any:
        # The table has the parts of functions and classes.
        return super()._value(value) if type(value) in self.dispatch_table else _unsent(value)


def _unsent(value: Any) -> Any:
    return Unsent, (_text(value, repr), _text(value, str))


def _text(value: Any, show: Any) -> str:
    try:
        return str(show(value))
    except Exception as failure:
        return f"(its text raises {type(failure).__name__})"


def _state(error: BaseException, with_causes: bool) -> Any:
    members = {}
    for name, member in _members(type(error)).items():
        # An attribute that was never set, or does not apply to this error.
        with contextlib.suppress(AttributeError):
            members[name] = member.__get__(error)
    causes = (error.__cause__, error.__context__) if with_causes else (None, None)
    return members, vars(error), causes, error.__suppress_context__


def _without_init(kind: type[BaseException], *group: Any) -> BaseException:
    native: Any = kind
    while native.__flags__ & _HEAP_TYPE:
        native = native.__base__
    error: BaseException = native.__new__(kind, *group)
    return error


def _restore(error: BaseException, state: Any) -> None:
    members, attributes, (cause, context), suppress = state
    known = _members(type(error))
    for name, value in members.items():
        # An OSError whose file name was set to None says "None".
        if value is not None or known[name].__objclass__.__flags__ & _HEAP_TYPE:
            with contextlib.suppress(AttributeError, TypeError):  # read-only
                known[name].__set__(error, value)
    vars(error).update(attributes)
    error.__context__, error.__cause__, error.__suppress_context__ = context, cause, suppress


def _members(kind: type) -> dict[str, Any]:
    """Return what an exception holds besides its `__dict__`: `args`, `__slots__`, and fields of C."""
    return {
        name: member
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)) and not name.startswith("__")
    }
