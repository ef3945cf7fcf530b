"""What ``tensorflow`` is to user code: `tf.compat.v1`, and what that lacks of TensorFlow 1.15.

Imported when TensorFlow is loaded. The areas and `tf.contrib` are brought in at their first use, because the
package's own modules import TensorFlow in turn.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy import views
from staging_tf1.legacy.keras_two import without_keras_two
from staging_tf1.legacy.origin import Origin
from staging_tf1.legacy.settings import CLAIMED_VERSION, Settings
from staging_tf1.legacy.submodules import BELOW_THE_API
from staging_tf1.legacy.views import UNCHANGED, View

_ADDED = ("contrib", "staging", "estimator")
_AREAS = ("StagingArea", "MapStagingArea")


def attach(module: ModuleType, origin: Origin, settings: Settings) -> None:
    """Switches v2 behaviour off and gives the loaded ``tensorflow`` its TF1 face."""
    v1 = views.own(module, "compat").v1
    with _silent_deprecations():
        v1.disable_v2_behavior()
    names = _Names(module, v1)
    views.attach(module, View(_overlay(module, v1, settings), names.read, names.all), origin)


def attach_data_flow_ops(module: ModuleType, origin: Origin) -> None:
    """Gives ``tensorflow.python.ops.data_flow_ops`` our areas, for user code."""

    def read(name: str) -> Any:
        if name not in _AREAS:
            return UNCHANGED
        return getattr(importlib.import_module("staging_tf1"), name)

    views.attach(module, View({}, read), origin)


def attach_public(module: ModuleType, fullname: str, origin: Origin) -> None:
    """Gives a public submodule, such as ``tensorflow.train``, the names that TF1 had there."""
    path = fullname.split(".")[1:]

    def read(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            return UNCHANGED
        try:
            there = functools.reduce(getattr, path, views.own(sys.modules["tensorflow"], "compat").v1)
        except (AttributeError, ImportError):
            return UNCHANGED  # Keras 3's, say, which never had a TF1 form
        if name == "__all__":
            return [public for public in dir(there) if not public.startswith("_")]
        return getattr(there, name, UNCHANGED)

    views.attach(module, View({}, read), origin)


class _Names:
    """Finds a name of TF1 in what TensorFlow 2 has."""

    def __init__(self, module: ModuleType, v1: Any) -> None:
        self._module = module
        self._v1 = v1

    def all(self) -> list[str]:
        """The public names, as ``dir(tf)`` and the star import give them."""
        return sorted({name for name in dir(self._v1) if not name.startswith("_")} | set(_ADDED))

    def read(self, name: str) -> Any:
        if name == "__all__":
            return self.all()
        if name.startswith("__") and name != "__version__":
            return UNCHANGED
        if name == "contrib":
            return importlib.import_module("tensorflow.contrib")
        if name == "staging":
            return importlib.import_module("staging_tf1.legacy.tutorial").module()
        try:
            return getattr(self._v1, name)
        except AttributeError:
            if name in BELOW_THE_API:
                return UNCHANGED
            if name == "estimator":
                return importlib.import_module("staging_tf1.legacy.estimator").module()
        raise RemovedNameError(
            f"module 'tensorflow' has no attribute {name!r}: tf.{name} is not in tf.compat.v1 of TensorFlow "
            f"{self._v1.__version__}, and staging_tf1 does not bring it back."
        )


def _overlay(module: ModuleType, v1: Any, settings: Settings) -> dict[str, Any]:
    # compat.v1.compat knows only part of itself; the top-level one has v1, v2 and forward_compatible.
    overlay: dict[str, Any] = {"compat": views.own(module, "compat")}
    overlay.update(without_keras_two(module, v1))
    if settings.claim_version:
        version = ModuleType("tensorflow.version")
        version.__dict__.update({name: getattr(v1.version, name) for name in dir(v1.version)})
        version.__dict__["VERSION"] = CLAIMED_VERSION
        overlay.update(__version__=CLAIMED_VERSION, VERSION=CLAIMED_VERSION, version=version)
    return overlay


@contextlib.contextmanager
def _silent_deprecations() -> Iterator[None]:
    # disable_v2_behavior() warns that it is deprecated, which is no news to someone who runs TF1 code.
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
