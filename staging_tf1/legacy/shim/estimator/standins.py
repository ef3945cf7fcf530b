"""What the package finds in TensorFlow while it loads, although TensorFlow has removed it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError

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
    modules[_COORDINATOR] = importlib.import_module("staging_tf1.legacy.shim.estimator.coordinator")
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


def _absent_module(fullname: str) -> ModuleType:
    """Return a module whose names are classes that cannot be instantiated: the package uses some for `isinstance`."""
    module = ModuleType(fullname)

    def absent(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {fullname!r} has no attribute {name!r}")

        def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
            raise RemovedNameError(
                f"{fullname}.{name} was removed from TensorFlow. TPUEstimator works with use_tpu=False only."
            )

        module.__dict__[name] = value = type(name, (), {"__new__": refuse})
        return value

    module.__dict__["__getattr__"] = absent
    return module
