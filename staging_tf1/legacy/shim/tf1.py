"""The ``tensorflow`` that user code sees: `tf.compat.v1`, and the names of TensorFlow 1.15 that it lacks.

This module is imported when TensorFlow is loaded. The areas and `tf.contrib` are imported at their first use,
because they import TensorFlow themselves.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.shim import views
from staging_tf1.legacy.shim.keras_two import without_keras_two
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.settings import CLAIMED_VERSION, Settings
from staging_tf1.legacy.shim.submodules import BELOW_THE_API
from staging_tf1.legacy.shim.views import UNCHANGED, View

_ADDED = ("contrib", "staging", "estimator")
_CHANGED = (*_ADDED, "Tensor")


def attach(module: ModuleType, origin: Origin, settings: Settings) -> None:
    """Give the loaded ``tensorflow`` and its ``compat.v1`` their TF1 faces."""
    v1 = views.own(module, "compat").v1
    names = _Names(module, v1, origin, settings)
    overlay = _overlay(module, v1, settings)
    compat = {"compat": views.own(module, "compat")}  # compat.v1.compat is incomplete
    views.attach(module, View(compat | overlay, names.read_top, names.all), origin)
    views.attach(v1, View(overlay, lambda name: names.read(name) if name in _CHANGED else UNCHANGED), origin)


def switch_off_v2(module: ModuleType) -> None:
    """Switch v2 behaviour off in the loaded ``tensorflow``."""
    # It warns that it is deprecated, which users of TF1 code know.
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        views.own(module, "compat").v1.disable_v2_behavior()
    finally:
        logger.setLevel(level)


def attach_public(module: ModuleType, fullname: str, origin: Origin) -> None:
    """Give a public submodule, such as ``tensorflow.train``, the names that TF1 had there."""
    path = fullname.split(".")[1:]

    def read(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            return UNCHANGED
        try:
            there = functools.reduce(getattr, path, views.own(sys.modules["tensorflow"], "compat").v1)
        except (AttributeError, ImportError):
            return UNCHANGED  # a module without a TF1 form, such as one of Keras 3
        if there is module:
            return UNCHANGED
        if name == "__all__":
            return [public for public in dir(there) if not public.startswith("_")]
        return getattr(there, name, UNCHANGED)

    views.attach(module, View({}, read), origin)


class _Names:
    """The names of TF1, looked up in TensorFlow 2."""

    def __init__(self, module: ModuleType, v1: Any, origin: Origin, settings: Settings) -> None:
        self._module = module
        self._v1 = v1
        self._origin = origin
        self._settings = settings

    def all(self) -> list[str]:
        """Return the public names, as listed by ``dir(tf)`` and the star import."""
        return sorted({name for name in views.own(self._v1, "__dir__")() if not name.startswith("_")} | set(_ADDED))

    def read_top(self, name: str) -> Any:
        if name == "estimator" and self._settings.only and not self._origin.is_lent(sys._getframe()):
            # A TensorFlow 2 program: it expects what TensorFlow 2.15 had here.
            return importlib.import_module("staging_tf1.legacy.shim.estimator.names").module("v2")
        return self.read(name)

    def read(self, name: str) -> Any:
        if name == "__all__":
            return self.all()
        if name.startswith("__") and name != "__version__":
            return UNCHANGED
        if name == "contrib":
            return importlib.import_module("tensorflow.contrib")
        if name == "staging":
            return importlib.import_module("staging_tf1.legacy.shim.tutorial").module()
        if name == "estimator":
            return importlib.import_module("staging_tf1.legacy.shim.estimator.names").module()
        if name == "Tensor" and not self._v1.executing_eagerly_outside_functions():
            # Programs ask for `type(x) is tf.Tensor`. Tensors of graphs have a class of their own.
            return views.own(self._module, "__internal__").SymbolicTensor
        try:
            return views.own(self._v1, name)
        except AttributeError:
            if name == "pywrap_tensorflow":
                return importlib.import_module("tensorflow.python.pywrap_tensorflow")
            if name in BELOW_THE_API:
                # TensorFlow 2 deletes tf.python and tf.core once it is loaded.
                return sys.modules.get(f"tensorflow.{name}", UNCHANGED)
        raise RemovedNameError(
            f"module 'tensorflow' has no attribute {name!r}: tf.{name} is not in tf.compat.v1 of TensorFlow "
            f"{self._v1.__version__}, and staging_tf1 does not restore it."
        )


def _overlay(module: ModuleType, v1: Any, settings: Settings) -> dict[str, Any]:
    overlay = without_keras_two(module, v1)
    if settings.claim_version:
        version = ModuleType("tensorflow.version")
        version.__dict__.update({name: getattr(v1.version, name) for name in dir(v1.version)})
        version.__dict__["VERSION"] = CLAIMED_VERSION
        overlay.update(__version__=CLAIMED_VERSION, VERSION=CLAIMED_VERSION, version=version)
    return overlay
