"""All exceptions and warnings of the package, one class per way a run can end.

The end of data has no class here. It is `tf.errors.OutOfRangeError`, which `tf.train.MonitoredSession` and
`tf.train.Coordinator` understand. An exception raised by a source is re-raised unchanged in the thread that waits for
the batch.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import ParamSpec, TypeVar

__all__ = [
    "BuildError",
    "CheckpointError",
    "ClusterError",
    "CorruptRecordError",
    "ForkedError",
    "LeftoverWarning",
    "PlacementWarning",
    "RecordFileError",
    "RemovedModuleError",
    "RemovedNameError",
    "ResumeError",
    "SourceError",
    "SpecError",
    "StagingError",
    "StagingWarning",
    "StallError",
    "StuckThreadWarning",
    "UnclosedWarning",
    "UninitializedError",
]

# The packages whose lines are not the user's. contextlib calls the generators of `with` statements.
_NOT_THE_USER = {"staging_tf1", "tensorflow", "contextlib"}
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class StagingError(Exception):
    """Base class of all errors that this package defines."""

    # Without this, AutoGraph replaces an exception raised in a tf.function or a Dataset function with its own.
    ag_pass_through = True


class SpecError(StagingError, ValueError):
    """Values do not match their declared number, names, dtypes, shapes or structure."""


class BuildError(StagingError, RuntimeError):
    """An op was created in a loop, a function, a finalized graph, another thread or another unsupported place.

    Or a pipeline was built that cannot run, such as one whose batches depend on a placeholder.
    """


class UninitializedError(StagingError, RuntimeError):
    """Feed threads cannot start because variables are uninitialized."""


class SourceError(StagingError, RuntimeError):
    """A source raised an exception that has a special meaning for sessions.

    Training sessions interpret some exceptions as the end of data or as a reason to restart. These are `StopIteration`,
    and `OutOfRangeError`, `AbortedError` and `UnavailableError` of `tf.errors`. Python does the same for
    `StopIteration` in a generator (PEP 479). The original exception is the `__cause__`.
    """


class CheckpointError(StagingError, ValueError):
    """A checkpoint is damaged, or belongs to another graph.

    TensorFlow reports some of these cases as `OutOfRangeError`, which training loops interpret as the end of data.
    """


class ResumeError(StagingError, ValueError):
    """The position in a checkpoint belongs to another sequence of batches."""


class ClusterError(StagingError, RuntimeError):
    """A cluster is described wrongly, a task of it does not answer, or two processes claim the same task."""


class ForkedError(StagingError, RuntimeError):
    """A session is used in a process forked after TensorFlow sessions had run.

    TensorFlow's threads do not survive a fork. Start processes with spawn or forkserver, or before the first session.
    """


class StallError(StagingError, RuntimeError):
    """A step waited for input longer than `stall_secs`, with `stall_raises=True`.

    Attributes:
      report: the full report as text. Its first lines are the message.
    """

    def __init__(self, report: str) -> None:
        super().__init__(report)
        self.report = report


class RecordFileError(StagingError, OSError):
    """A record file or its index is missing, has changed, or has another format."""


class CorruptRecordError(StagingError, ValueError):
    """A record is truncated, or its checksum does not match.

    Attributes:
      path: the record file.
      offset: the position of the record, in bytes from the start of the (uncompressed) file.
    """

    def __init__(self, message: str, path: str, offset: int) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def __reduce__(self) -> tuple[type[CorruptRecordError], tuple[str, str, int]]:
        # The default would call the constructor with the message alone.
        return type(self), (str(self), self.path, self.offset)


class RemovedNameError(StagingError, AttributeError):
    """A TF1 name that neither TensorFlow nor this package provides.

    It is an `AttributeError`, which keeps ``hasattr`` and ``getattr(tf, name, default)`` in old code working.
    """


class RemovedModuleError(StagingError, ImportError):
    """A TF1 module that neither TensorFlow nor this package provides.

    It is an `ImportError`, which keeps ``try: ... except ImportError:`` in old code working.
    """


class StagingWarning(UserWarning):
    """Base class of all warnings that this package issues."""


class PlacementWarning(StagingWarning):
    """An area is placed on a different device than the ops that consume it."""


class StuckThreadWarning(StagingWarning):
    """A feed thread was still running user code at the join deadline."""


class LeftoverWarning(StagingWarning):
    """Staged batches were not consumed: the towers had unequal numbers of them."""


class UnclosedWarning(StagingWarning, ResourceWarning):
    """A session helper was garbage-collected without being closed."""


class NotebookWarning(StagingWarning):
    """Cells of a notebook were run in an order that leaves a pipeline or values of TensorFlow 2 behind."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn, and show the line of the user's program that called the package, however deep the call is."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and not _is_users(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def short_traceback(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let exceptions leave `function` with the frames of the user's program only. Their causes get the same.

    Shortened are errors of this package and of TensorFlow, whose message says what to do, and exceptions of the user's
    functions that this package has called. All others may be mistakes of this package, and keep their traceback. As
    TensorFlow does with its own frames, nothing is hidden after `tf.debugging.disable_traceback_filtering()`.
    """

    @functools.wraps(function)
    def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not (_hides_frames() and _shorten(error)):
                raise
            # Python 3.10 would restore the traceback at a bare `raise`.
            raise error

    return call


def _shorten(error: BaseException) -> bool:
    """Shorten the traceback of an exception and those of its causes. Return whether its own is another."""
    before = error.__traceback__
    seen: set[int] = set()
    shown: BaseException | None = error
    while shown is not None and id(shown) not in seen:
        seen.add(id(shown))
        entries = _entries(shown.__traceback__)
        if isinstance(shown, StagingError) or _is_of(shown, {"tensorflow"}) or _is_raised_by_user(entries):
            shown.__traceback__ = _of_users(entries)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return error.__traceback__ is not before


def _entries(traceback: types.TracebackType | None) -> list[types.TracebackType]:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    return entries


def _is_raised_by_user(entries: list[types.TracebackType]) -> bool:
    """Whether the program's own code was running: below the last frame of this package is one of it."""
    for entry in reversed(entries):
        if _is_of(entry.tb_frame, {"staging_tf1"}):
            return False
        if not _is_of(entry.tb_frame, _NOT_THE_USER | sys.stdlib_module_names) and (
            "site-packages" not in entry.tb_frame.f_code.co_filename
        ):
            return True
    return False


def _of_users(entries: list[types.TracebackType]) -> types.TracebackType | None:
    traceback = None
    for entry in reversed(entries):
        if _is_users(entry.tb_frame):
            traceback = types.TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback


def _is_users(frame: types.FrameType) -> bool:
    return not _is_of(frame, _NOT_THE_USER)


def _is_of(thing: types.FrameType | BaseException, packages: AbstractSet[str]) -> bool:
    """Whether the code of a frame, or the class of an exception, is in one of these packages."""
    module = thing.f_globals.get("__name__") if isinstance(thing, types.FrameType) else type(thing).__module__
    return str(module).partition(".")[0] in packages


def _hides_frames() -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is None or bool(tensorflow.debugging.is_traceback_filtering_enabled())
