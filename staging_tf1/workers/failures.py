"""Exceptions of a worker's source in the training process: of the same type, with the worker's traceback."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from staging_tf1.errors import SourceError

__all__ = ["CannotStart", "WorkerTraceback", "cannot_start", "described", "raised"]


class CannotStart(SourceError):
    """No worker can load the source, so there will be no batch."""


def cannot_start(owner: str, error: Exception, what: str = "start worker processes") -> CannotStart:
    """Return why a pool has no workers, or no memory for their batches: what the system or the source has raised."""
    if isinstance(error, OSError):
        cure = "Raise the limits of open files (ulimit -n), processes (ulimit -u) and memory, or lower num_processes."
    else:
        cure = "A source must not be changed to one that cannot be pickled after staged()."
    return CannotStart(f"'{owner}': cannot {what}: {type(error).__name__}: {error}. {cure}")


class WorkerTraceback(Exception):
    """The traceback in the worker process, as text: the `__cause__` of an exception raised there."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def described(error: BaseException) -> bytes:
    """Pickle an exception: the exception itself, or its type and values, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    for form in (_whole, _parts):
        try:
            payload = form(error)
            pickle.loads(payload)
        except Exception:
            continue
        return pickle.dumps((payload, text))
    return pickle.dumps((_said(error), text))


def raised(payload: Any, worker: str) -> BaseException:
    """Return the exception of `described`; a SourceError that names its type if it cannot be made here."""
    pickled, text = pickle.loads(payload)
    error: Any = None
    try:
        error = pickle.loads(pickled)
    except Exception:
        error = None
    if not isinstance(error, BaseException):
        said = error if isinstance(error, str) else text.strip().splitlines()[-1]
        error = SourceError(f"the source raised, in a worker process: {said}")
    made: BaseException = error
    made.__cause__ = WorkerTraceback(f"in worker process '{worker}':\n{text}")
    return made


def _whole(error: BaseException) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:
        # Its class may be one of the main program, which pickle cannot find by name. By value it becomes the class
        # that it was made of in the training process.
        import cloudpickle

        made: bytes = cloudpickle.dumps(error)
        return made


def _parts(error: BaseException) -> bytes:
    """Pickle an exception whose constructor takes other arguments than `args`. It is made without the constructor."""
    return pickle.dumps(_Remade(type(error), error.args, _picklable(vars(error))))


def _said(error: BaseException) -> bytes:
    try:
        text = str(error)
    except Exception as failure:
        text = f"(its text raises {type(failure).__name__})"
    return pickle.dumps(f"{type(error).__name__}: {text}")


def _picklable(values: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in values.items():
        try:
            pickle.dumps(value)
        except Exception:
            continue
        kept[name] = value
    return kept


class _Remade:
    """Becomes an exception when it is unpickled."""

    def __init__(self, kind: type[BaseException], args: tuple[Any, ...], values: dict[str, Any]) -> None:
        self._made = kind, args, values

    def __reduce__(self) -> Any:
        return _remade, self._made


def _remade(kind: type[BaseException], args: tuple[Any, ...], values: dict[str, Any]) -> BaseException:
    error: BaseException = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error
