"""Every exception and warning of the package: one class per way to end.

The end of data is not among them: it is `tf.errors.OutOfRangeError`, which `tf.train.MonitoredSession` and
`tf.train.Coordinator` understand. An exception that a source raised is raised again as it was, where the user waits.
"""

from __future__ import annotations

__all__ = [
    "BuildError",
    "CheckpointError",
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


class StagingError(Exception):
    """Base of all errors that this package defines."""

    # AutoGraph replaces what is raised in a tf.function or a Dataset function by an error of its own, unless
    # this is set.
    ag_pass_through = True


class SpecError(StagingError, ValueError):
    """Values do not fit what was declared: their number, names, dtypes, shapes or structure."""


class BuildError(StagingError, RuntimeError):
    """Ops are being built where they must not be: in a loop, a function, a finalized graph, another thread."""


class UninitializedError(StagingError, RuntimeError):
    """Feed threads were to be started before the variables had values."""


class SourceError(StagingError, RuntimeError):
    """A source raised what a training session would take for the end of the data, or for a reason to start again.

    These are StopIteration and the OutOfRangeError, AbortedError and UnavailableError of `tf.errors`, as PEP 479 makes
    a RuntimeError of a StopIteration within a generator. The exception itself is the `__cause__`.
    """


class CheckpointError(StagingError, ValueError):
    """A checkpoint is damaged, or is not one of this graph.

    TensorFlow reports some of these as `OutOfRangeError`, which loops take for the end of the data.
    """


class ForkedError(StagingError, RuntimeError):
    """A session is used in a process that was forked after TensorFlow sessions had run.

    TensorFlow's threads do not survive a fork. Start processes by spawn or forkserver, or before the first session.
    """


class StallError(StagingError, RuntimeError):
    """A step waited longer than `stall_secs` for input, and `stall_raises=True` ended the wait.

    Attributes:
      report: the whole report as text; its first lines are the message.
    """

    def __init__(self, report: str) -> None:
        super().__init__(report)
        self.report = report


class RecordFileError(StagingError, OSError):
    """A record file or its index is gone, has changed, or is not what its name says."""


class CorruptRecordError(StagingError, ValueError):
    """A record is truncated, or its checksum does not fit its bytes.

    Attributes:
      path: the record file.
      offset: of the record, in bytes from the file's (uncompressed) beginning.
    """

    def __init__(self, message: str, path: str, offset: int) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class RemovedNameError(StagingError, AttributeError):
    """A name of TF1 that neither TensorFlow nor this package has.

    An AttributeError, so that ``hasattr`` and ``getattr(tf, name, default)`` in old code behave.
    """


class RemovedModuleError(StagingError, ImportError):
    """A module of TF1 that neither TensorFlow nor this package has.

    An ImportError, so that old code's ``try: ... except ImportError:`` takes its other branch.
    """


class StagingWarning(UserWarning):
    """Base of all warnings that this package gives."""


class PlacementWarning(StagingWarning):
    """An area stands on another device than the ops that consume it."""


class ResumeError(StagingError, ValueError):
    """A checkpoint holds a position in another sequence of batches than the source gives now."""


class StuckThreadWarning(StagingWarning, ResourceWarning):
    """A feed thread did not return from the user's code before the join deadline."""


class LeftoverWarning(StagingWarning):
    """Batches were staged that no step took, because the towers had unequal numbers of them."""


class UnclosedWarning(StagingWarning, ResourceWarning):
    """A session helper was forgotten: it was collected without having been closed."""
