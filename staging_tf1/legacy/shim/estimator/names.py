"""The names of `tf.estimator`: those of the package, and an error for each that the package lacks."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import RemovedModuleError, RemovedNameError
from staging_tf1.legacy.contrib.homes import ESTIMATOR_HOOKS
from staging_tf1.legacy.shim import views
from staging_tf1.legacy.shim.keras_two import has_keras_two

PACKAGE = "tensorflow_estimator"
INSTALL = "pip install tensorflow-estimator==2.15.0"

# Names of TensorFlow 1.15 that the package does not have.
_GONE = ("BoostedTreesClassifier", "BoostedTreesEstimator", "BoostedTreesRegressor")


class _Estimator(ModuleType):
    """`tf.estimator`: "v1" for programs of TensorFlow 1, "v2" as TensorFlow 2.15 had it."""

    _api = "v1"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Programs that only use the session hooks need no package.
        if name in ESTIMATOR_HOOKS and hasattr(tf.train, name):
            return getattr(tf.train, name)
        return find(name, self._api)

    def __dir__(self) -> list[str]:
        names = set(ESTIMATOR_HOOKS)
        if importlib.util.find_spec(PACKAGE) is not None:
            names.update(name for name in dir(_package("estimator", self._api)) if not name.startswith("_"))
        return sorted(names)


@functools.cache
def module(api: str = "v1") -> ModuleType:
    """Return the `tf.estimator` module, the same one on every call."""
    estimator = _Estimator("tensorflow.estimator", __doc__)
    estimator.__dict__["_api"] = api
    estimator.__path__ = []  # a package: old code imports from tensorflow.estimator.inputs
    return estimator


def below(fullname: str) -> ModuleType:
    """Return the package's module for ``tensorflow.python.estimator`` or a module below it.

    Raises RemovedModuleError if the package is not installed or lacks the module.
    """
    path = fullname.removeprefix("tensorflow.")
    try:
        _package(fullname)
        return importlib.import_module(f"{PACKAGE}.{path}")
    except RemovedNameError as error:
        raise RemovedModuleError(str(error)) from None
    except ModuleNotFoundError as error:
        raise RemovedModuleError(f"{fullname} is not in the package tensorflow-estimator: {error}.") from None


def find(path: str, api: str = "v1") -> Any:
    """Return ``tf.estimator.<path>``.

    Raises RemovedNameError if the package lacks it, or if the package or Keras 2 is not installed.
    """
    full = f"tf.estimator.{path}"
    if path in _GONE:
        raise RemovedNameError(
            f"{full} was removed, and the package tensorflow-estimator lacks it. Its ops were removed from TensorFlow. "
            "Use the package tensorflow-decision-forests instead."
        )
    value: Any = _package(full, api)
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise RemovedNameError(
                f"{full} is not in the package tensorflow-estimator, and staging_tf1 does not restore it."
            ) from None
    return value


def _package(full: str, api: str = "v1") -> ModuleType:
    """Return the package's own `tf.estimator` module. `full` is the name that the error message shows."""
    name = f"{PACKAGE}._api.{api}.estimator"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    if importlib.util.find_spec(PACKAGE) is None:
        raise RemovedNameError(
            f"{full} needs the package tensorflow-estimator, which this TensorFlow does not bring along. Install it: "
            f"{INSTALL}. The program itself needs no change."
        )
    if not has_keras_two():
        raise RemovedNameError(
            f"{full} needs Keras 2, and this TensorFlow comes with Keras 3. Install Keras 2 as well: pip install "
            "tf_keras. The program itself needs no change."
        )
    keras = views.own(sys.modules["tensorflow"], "keras")
    if not str(getattr(keras, "__version__", "2")).startswith("2"):
        raise RemovedNameError(
            f"{full} needs Keras 2, and this process has loaded Keras 3. Call staging_tf1.legacy.install(), or set "
            "TF_USE_LEGACY_KERAS=1, before the first import of tensorflow."
        )
    return importlib.import_module(name)
