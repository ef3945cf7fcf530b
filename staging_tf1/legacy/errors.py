"""What the shim raises: a name of TF1 that is not coming back, said so that one knows where it went."""

from __future__ import annotations

from staging_tf1.errors import StagingError


class RemovedNameError(StagingError, AttributeError):
    """A name of TF1 that neither TensorFlow nor this package has.

    An AttributeError, so that ``hasattr`` and ``getattr(tf, name, default)`` in old code behave.
    """


class RemovedModuleError(StagingError, ImportError):
    """A module of TF1 that neither TensorFlow nor this package has.

    An ImportError, so that old code's ``try: ... except ImportError:`` takes its other branch.
    """
