"""`tf.estimator` as far as training loops need it: the session hooks, which are `tf.train`'s own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import RemovedNameError

_HOOKS = (
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
)


class _Estimator(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RemovedNameError(
            f"tf.estimator.{name} left TensorFlow with 2.16, and staging_tf1 does not bring it back: only the "
            f"session hooks are here ({', '.join(_HOOKS[:3])}, ...). Build the training loop with "
            "tf.train.MonitoredTrainingSession or staging_tf1.StagingSession."
        )


_module: ModuleType | None = None


def module() -> ModuleType:
    """The one `tf.estimator` of this process."""
    global _module
    if _module is None:
        _module = _Estimator("tensorflow.estimator", __doc__)
        _module.__dict__.update({name: getattr(tf.train, name) for name in _HOOKS if hasattr(tf.train, name)})
    return _module
