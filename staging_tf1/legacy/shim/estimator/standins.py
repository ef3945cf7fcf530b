"""What the package finds in TensorFlow while it loads, although TensorFlow has removed it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.shim import views

_COORDINATOR = "tensorflow.python.distribute.estimator_training"
# Modules for TPUs. The package imports them for every program, and uses them only on a TPU.
_TPU = (
    "tensorflow.python.tpu.session_support",
    "tensorflow.python.tpu.tpu_embedding",
    "tensorflow.python.tpu.tpu_embedding_gradient",
)


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Put the removed modules and names in their old places for the time of the context.

    Does nothing on a TensorFlow that has them, up to 2.15. Afterwards other libraries again see what TensorFlow has.
    """
    if importlib.util.find_spec(_COORDINATOR) is not None:
        yield
        return
    modules = {name: _absent_module(name) for name in _TPU if importlib.util.find_spec(name) is None}
    coordinator = modules[_COORDINATOR] = ModuleType(_COORDINATOR)
    coordinator.__spec__ = ModuleSpec(_COORDINATOR, None)  # a context within this one looks for it
    coordinator.__dict__["init_run_config"] = _init_run_config
    coordinator.__dict__["should_run_distribute_coordinator"] = lambda config: False
    sys.modules.update(modules)
    try:
        with importlib.import_module("staging_tf1._tf").estimator_exports():
            yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)


def without_deprecations(estimator_export: ModuleType) -> None:
    """Stop the package from marking every name as deprecated in favour of `tf.keras`.

    The mark wraps the constructors of the classes, those of TensorFlow's own session hooks among them.
    """

    def unchanged(*_: Any) -> Callable[[Any], Any]:
        return lambda exported: exported

    estimator_export.__dict__["deprecation"] = SimpleNamespace(deprecated=unchanged)


def without_renamed_names(package: ModuleType) -> None:
    """Stop the API modules of the package from logging that their names are now in `tf.compat.v1`."""
    log_no_renamed_names = importlib.import_module("staging_tf1._tf").log_no_renamed_names
    for name in [name for name in sys.modules if name.startswith("tensorflow_estimator.")]:
        log_no_renamed_names(sys.modules[name])


def complete(run_config: ModuleType) -> None:
    """Give every `RunConfig` the attribute that the one of `tf.contrib.learn` does not set: it is newer than 1.15."""
    run_config.RunConfig._checkpoint_save_graph_def = True


def _absent_module(fullname: str) -> ModuleType:
    """Return a module whose names are classes that cannot be instantiated: the package uses some for `isinstance`."""

    def absent(name: str) -> Any:
        def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
            raise RemovedNameError(
                f"{fullname}.{name} was removed from TensorFlow. TPUEstimator works with use_tpu=False only."
            )

        module.__dict__[name] = value = type(name, (), {"__new__": refuse})
        return value

    module = views.lazy(ModuleType(fullname), absent)
    return module


# ---- what stands in for `tensorflow.python.distribute.estimator_training`

# The package asks it how a `RunConfig` distributes the training. It provides distribution over the devices of this
# process (`train_distribute=tf.distribute.MirroredStrategy()`), and over a cluster with parameter servers (TF_CONFIG
# without a strategy). The coordinator for a strategy across a cluster is removed.


def _init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
    """Complete a new `RunConfig` from the contents of TF_CONFIG.

    Raises RemovedNameError for a strategy across a cluster.
    """
    asked = config._experimental_distribute
    if asked is not None:
        for name in ("train_distribute", "eval_distribute"):
            if strategy := getattr(asked, name):
                if getattr(config, f"_{name}"):
                    where = "by itself and in experimental_distribute"
                    raise ValueError(f"RunConfig got {name} twice: {where}. Drop one of them.")
                setattr(config, f"_{name}", strategy)
        if asked.remote_cluster:
            _refuse("experimental_distribute.remote_cluster")
    jobs = tf_config.get("cluster", {})
    if config._train_distribute and jobs and "master" not in jobs:
        _refuse(f"train_distribute={type(config._train_distribute).__name__} in the cluster of TF_CONFIG")
    config._distribute_coordinator_mode = None
    config._init_distributed_setting_from_environment_var(tf_config)
    config._maybe_overwrite_session_config_for_distributed_training()


def _refuse(setting: str) -> None:
    cure = " without TF_CONFIG" if os.environ.get("TF_CONFIG") else ""
    raise RemovedNameError(
        f"tf.estimator.RunConfig got {setting}. The coordinator for strategies across a cluster was removed in "
        f"TensorFlow 2.16. Drop the strategy, so that TF_CONFIG describes parameter servers and workers, or train on "
        f"one machine{cure}."
    )
