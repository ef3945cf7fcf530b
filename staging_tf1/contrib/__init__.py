"""`tf.contrib` for programs that `staging-tf1 migrate` has rewritten: TensorFlow 1.15.5's own modules, in plain Python.

``staging_tf1.contrib.layers`` is ``tf.contrib.layers``, and so on with each part and each module below it. Only these
modules see TensorFlow 1; the program itself sees what it imports. Their files must have been fetched:
``staging-tf1 contrib fetch``.

Example:

>>> import tensorflow.compat.v1 as tf
>>> tf.disable_v2_behavior()
>>> from staging_tf1.contrib import training  # doctest: +SKIP
>>> training.HParams(rate=0.5).parse("rate=0.1").rate  # doctest: +SKIP
0.1
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from staging_tf1.legacy.contrib.homes import PARTS
from staging_tf1.legacy.contrib.modules import maker
from staging_tf1.legacy.shim.installation import lend
from staging_tf1.legacy.shim.keras_two import choose

__all__: list[str] = []  # the names depend on the fetched files
# The import system reads __path__ before it imports a module below, and no earlier: importing this package alone
# changes nothing in the process.
_PATH = list(__path__)
del __path__


def __getattr__(name: str) -> Any:
    if name == "__path__":
        lend()
        return _PATH
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    lend()
    choose()
    return getattr(importlib.import_module("tensorflow.contrib"), name)


def module_of(alias: str) -> ModuleType:
    """Return the module of `tf.contrib` with the name `alias` here. Importing it imports this module.

    Raises RemovedModuleError, which says what to do, if there is none.
    """
    choose()
    full = alias.replace(__name__, "tensorflow.contrib", 1)
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{full}.".startswith(f"{error.name}."):
            maker(error.name)  # raises
        raise


def __dir__() -> list[str]:
    return sorted(PARTS)
