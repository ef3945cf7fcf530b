"""The part of `tf.estimator` that training loops need: the session hooks, which are the ones of `tf.train`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib.homes import ESTIMATOR_HOOKS


class _Estimator(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RemovedNameError(
            f"tf.estimator.{name} was removed in TensorFlow 2.16, and staging_tf1 restores only the session hooks "
            f"({', '.join(ESTIMATOR_HOOKS[:3])}, ...). Build the training loop with "
            "tf.train.MonitoredTrainingSession or staging_tf1.StagingSession."
        )


_module: ModuleType | None = None


def module() -> ModuleType:
    """Return the `tf.estimator` module, the same one on every call."""
    global _module
    if _module is None:
        _module = _Estimator("tensorflow.estimator", __doc__)
        _module.__dict__.update({name: getattr(tf.train, name) for name in ESTIMATOR_HOOKS if hasattr(tf.train, name)})
    return _module
