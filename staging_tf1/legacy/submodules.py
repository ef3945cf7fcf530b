"""Submodules of ``tensorflow`` that TF1 had and the path does not: `tensorflow.contrib`, `tensorflow.gfile`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

Make = Callable[[ModuleType], None]
# Old code reaches below the public API; these folders are still there.
BELOW_THE_API = ("python", "core", "compiler", "lite", "tools", "compat")


def is_public(fullname: str) -> bool:
    """Whether `fullname` is a module of the public API, of a TensorFlow that is loaded."""
    root = sys.modules.get("tensorflow")
    # While TensorFlow itself loads, its modules are its own affair.
    if root is None or getattr(root.__spec__, "_initializing", False):
        return False
    first = fullname.split(".")[1]
    return first not in BELOW_THE_API and not first.startswith("_")


def maker(fullname: str) -> Make | None:
    """A function that turns a fresh module into `fullname`, or None where TF1 had no such module.

    Raises:
      RemovedModuleError: a part of `tf.contrib` that is not coming back.
    """
    if not is_public(fullname):
        return None
    root = sys.modules["tensorflow"]
    first = fullname.split(".")[1]
    if first == "contrib":
        made: Make = importlib.import_module("staging_tf1.legacy.contrib.modules").maker(fullname)
        return made
    genuine = _public_module(root, fullname.split(".")[1:])
    return None if genuine is None else lambda fresh: put_in_place(fullname, genuine)


def put_in_place(fullname: str, genuine: ModuleType) -> None:
    """Makes ``import fullname`` give `genuine`: the import system takes what stands in `sys.modules` at the end."""
    sys.modules[fullname] = genuine


def _public_module(root: ModuleType, path: list[str]) -> ModuleType | None:
    value: Any = root
    for name in path:
        try:
            value = getattr(value, name)
        except AttributeError:
            return None
    return value if isinstance(value, ModuleType) else None
