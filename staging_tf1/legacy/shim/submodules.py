"""Submodules that TF1 had and the installed TensorFlow lacks, such as `tensorflow.contrib` and `tensorflow.gfile`."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedModuleError
from staging_tf1.legacy.contrib import modules
from staging_tf1.legacy.contrib.modules import Make
from staging_tf1.legacy.shim import keras_two, views
from staging_tf1.legacy.shim.old_names import GONE_MODULES, removed_name, value_at
from staging_tf1.legacy.shim.origin import is_lent
from staging_tf1.legacy.shim.tables import PYTHON, TENSORFLOW, Gone

# Old code imports from these folders below the public API; TensorFlow 2 still has them.
BELOW_THE_API = ("python", "core", "compiler", "lite", "tools", "compat")
# Old code imports Estimator from here. TensorFlow 1.15 already had its own package in this place.
_ESTIMATOR = "tensorflow.python.estimator"
_V1 = "tensorflow.compat.v1."


def is_public(fullname: str) -> bool:
    """Whether `fullname` is a module of the public API, in a TensorFlow that is completely loaded."""
    root = sys.modules.get("tensorflow")
    # While TensorFlow itself loads, it must see its own modules.
    if root is None or getattr(root.__spec__, "_initializing", False):
        return False
    package, first, *_ = *fullname.split("."), ""
    return (
        package == "tensorflow"
        and first not in ("", *BELOW_THE_API)
        and not first.startswith("_")
        and not is_lent(fullname)
    )


def maker(fullname: str) -> Make | None:
    """Return a function that turns a new module into `fullname`, or None if TF1 had no such module.

    Raises RemovedModuleError for parts of `tf.contrib` and modules of Python that are not restored, and for Estimator
    without its package.
    """
    if (gone := _gone(fullname)) is not None:
        if fullname in PYTHON.modules and not gone.homes:
            raise RemovedModuleError(f"No module named {fullname!r}: Python has removed its own. {gone.advice}")
        return _stand_in
    if keras_two.counterpart(fullname) is not None:
        return _of_keras_two
    if fullname == _ESTIMATOR or fullname.startswith(_ESTIMATOR + "."):
        return _lend(fullname)
    if fullname.startswith(_V1):
        below = fullname.removeprefix(_V1)
        twin = _public_module(sys.modules["tensorflow.compat.v1"], below.split(".")) or importlib.import_module(
            f"tensorflow.{below}"
        )
        return lambda fresh: substitute(fullname, twin)
    if is_lent(fullname):
        return modules.maker(fullname)
    if not is_public(fullname):
        return None
    root = sys.modules["tensorflow"]
    genuine = _public_module(root, fullname.split(".")[1:])
    return None if genuine is None else lambda fresh: substitute(fullname, genuine)


def _of_keras_two(fresh: ModuleType) -> None:
    """Make a module that TensorFlow's own copy of Keras lacks, such as ``tensorflow.python.keras.layers.recurrent``."""

    def read(name: str) -> Any:
        value = keras_two.find(fresh.__name__, name)
        if value is views.UNCHANGED:
            raise AttributeError(f"module {fresh.__name__!r} has no attribute {name!r}")
        return value

    fresh.__dict__["__getattr__"] = read


def _lend(fullname: str) -> Make:
    lent: ModuleType = importlib.import_module("staging_tf1.legacy.shim.estimator.names").below(fullname)
    if not hasattr(lent, "__path__"):
        return lambda fresh: substitute(fullname, lent)

    def forward(fresh: ModuleType) -> None:
        # The package itself would lead the import system to its files, and load each a second time.
        fresh.__dict__["__getattr__"] = lambda name: getattr(lent, name)

    return forward


def _gone(fullname: str) -> Gone | None:
    """Return what became of a module; of those of tensorflow_estimator, one row stands for all that are below."""
    if fullname.startswith("tensorflow_estimator."):
        return TENSORFLOW.modules["tensorflow_estimator.contrib"]
    return GONE_MODULES.get(fullname) or TENSORFLOW.modules.get(fullname)


def _stand_in(fresh: ModuleType) -> None:
    """Make every name of the new module importable. One without a home raises `RemovedNameError` when it is used."""
    gone = _gone(fresh.__name__) or Gone()

    def read(name: str) -> Any:
        if _gone(below := f"{fresh.__name__}.{name}") is not None:
            return importlib.import_module(below)
        for home in gone.homes:
            try:
                there = value_at(home)
            except ModuleNotFoundError as error:
                if error.name != home.partition(":")[0]:
                    raise
                missing = f"{fresh.__name__}.{name}: no module {error.name}. {gone.advice}"
                raise ModuleNotFoundError(missing, name=error.name) from error
            if hasattr(there, name):
                return getattr(there, name)
        return removed_name(f"{fresh.__name__}.{name}", gone.advice)

    views.lazy(fresh, read)


def substitute(fullname: str, genuine: ModuleType) -> None:
    """Make ``import fullname`` return `genuine`: the import system reads `sys.modules` after the loader ran."""
    sys.modules[fullname] = genuine


def _public_module(root: ModuleType, path: list[str]) -> ModuleType | None:
    value = keras_two.below(root, path)
    return value if isinstance(value, ModuleType) else None
