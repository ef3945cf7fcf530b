"""`tf.layers`, `tf.nn.rnn_cell` and `tf.keras`, which need Keras 2.

Without it, the use of the first two raises an error that names tf_keras.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

from staging_tf1.errors import RemovedModuleError, RemovedNameError, StagingWarning, warn
from staging_tf1.legacy.shim import views

# TensorFlow reads it when it is first imported.
_VARIABLE = "TF_USE_LEGACY_KERAS"
_YES = ("1", "true", "True")
_COPY = "tensorflow.python.keras"
# Packages that have the classes for eager execution if TensorFlow 2's behavior is on while Keras 2 loads, as it is.
_CHOOSING = (f"{_COPY}.initializers", f"{_COPY}.layers")
# Second names of the optimizers, where Keras 2 has modules.
_OPTIMIZERS = {name.lower(): name for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")}
# Modules of TensorFlow in whose place programs see those of Keras 2: one class of each name serves tf.keras,
# tf.layers, tf.nn.rnn_cell and what is imported from here. Module of TensorFlow -> module of Keras 2.
_KERAS_TWO = {
    **{
        f"tensorflow.python.layers.{name}": f"legacy_tf_layers.{name}"
        for name in ("base", "convolutional", "core", "normalization", "pooling")
    },
    "tensorflow.python.ops.rnn_cell_impl": "layers.rnn.legacy_cells",
    "tensorflow.python.ops.rnn_cell": "layers.rnn.legacy_cells",
    # Those before tf.keras.optimizers: their Adagrad begins at 0.
    "tensorflow.python.keras.optimizers": "optimizers.optimizer_v1",
}
# Where the API of Keras 2 has tf.nn.rnn_cell.
_CELLS = ["__internal__", "legacy", "rnn_cell"]


def choose() -> bool:
    """Let TensorFlow use Keras 2 if it is installed as a package, unless the user has chosen. Return whether it is."""
    if importlib.util.find_spec("tf_keras") is None:
        return False
    os.environ.setdefault(_VARIABLE, "1")
    return True


def is_wanted() -> bool:
    """Whether the environment does not choose Keras 3."""
    return os.environ.get(_VARIABLE, "1") in _YES


def require() -> None:
    """Choose Keras 2, for a program that needs it.

    Raises RemovedModuleError if it is not installed. Warns if TensorFlow is already imported.
    """
    late = "tensorflow" in sys.modules and _VARIABLE not in os.environ
    if not choose() and not has_keras_two():
        raise RemovedModuleError(
            "this program uses tf.layers, tf.nn.rnn_cell or tf.keras of TensorFlow 1, which need Keras 2, and this "
            "TensorFlow comes with Keras 3. Install Keras 2 as well: pip install tf_keras."
        )
    if late and not has_keras_two(of_tensorflow=True):
        warn(
            "staging_tf1.contrib.keras_two was imported after TensorFlow: imports such as "
            "'from tensorflow.compat.v1.layers import dense' fail. Import it in the first line of the main program.",
            StagingWarning,
        )


def without_keras_two(module: ModuleType, v1: Any) -> dict[str, Any]:
    """Return stand-ins for the Keras 2 names of `module`, by name; an empty dict if Keras 2 is installed."""
    if has_keras_two():
        return {}
    return {
        # compat.v1.keras exists for Keras 2 only; the rest of the process uses Keras 3.
        "keras": views.own(module, "keras"),
        "layers": _absent_module("layers"),
        "nn": Covered(v1.nn, {"rnn_cell": _absent_module("nn.rnn_cell")}),
    }


def has_keras_two(of_tensorflow: bool = False) -> bool:
    """Return whether Keras 2 is installed: as tf_keras, or as TensorFlow's own Keras, as in TensorFlow 2.15.

    Args:
      of_tensorflow: ask for TensorFlow's own Keras only.
    """
    if not of_tensorflow and importlib.util.find_spec("tf_keras") is not None:
        return True
    try:
        # Importing it would import TensorFlow, which may be what asks. Its spec is what the shim looks for.
        return importlib.metadata.version("keras").startswith("2.")
    except importlib.metadata.PackageNotFoundError:
        return False


def counterpart(fullname: str) -> str | None:
    """Return the module of Keras 2 that programs see in place of one of ``tensorflow.python``, or None.

    TensorFlow has its own old copy of Keras, whose classes are not those of `tf.layers` and `tf.keras`.
    """
    if fullname in _KERAS_TWO:
        below = _KERAS_TWO[fullname]
    elif f"{fullname}.".startswith(f"{_COPY}."):
        below = fullname.removeprefix(_COPY).removeprefix(".")
    else:
        return None
    package = "tf_keras" if importlib.util.find_spec("tf_keras") is not None else "keras"
    return f"{package}.src.{below}".rstrip(".") if has_keras_two() else None


def find(fullname: str, name: str) -> Any:
    """Return a name that programs see in a module with a `counterpart`, or `UNCHANGED`."""
    home = counterpart(fullname)
    if home is None or (name.startswith("__") and name != "__all__"):
        return views.UNCHANGED
    if fullname.endswith(".optimizers"):
        name = _OPTIMIZERS.get(name, name)
    if name == "__all__":
        return sorted({each for place in _homes(fullname, home) for each in _contents(place)})
    for place in _homes(fullname, home):
        with contextlib.suppress(ImportError, AttributeError):
            return _seen(fullname, name, place)
    return views.UNCHANGED


def _homes(fullname: str, home: str) -> Iterator[Any]:
    """Yield where the names of a module of TensorFlow are in Keras 2: the first place that has a name counts."""
    ways = [functools.partial(importlib.import_module, home), functools.partial(_part_of_api, fullname, home)]
    for way in reversed(ways) if fullname in _CHOOSING else ways:
        with contextlib.suppress(ImportError):
            yield way()


def _contents(place: Any) -> list[str]:
    return [name for name in dir(place) if not (name.startswith("_") or isinstance(getattr(place, name), ModuleType))]


def _seen(fullname: str, name: str, place: Any) -> Any:
    """Return a name of `place`, which has it, as programs see it in the module `fullname`."""
    value, below = getattr(place, name), f"{fullname}.{name}"
    # For a submodule, return the one whose names `find` returns.
    is_below = isinstance(value, ModuleType) and f"{counterpart(below)}.".startswith(f"{value.__name__}.")
    return importlib.import_module(below) if is_below else value


def _part_of_api(fullname: str, home: str) -> Any:
    """Return the part of Keras 2's API that has the names of a module, even if Keras has moved them to another file.

    tf.keras.layers has what was in all files of layers/.
    """
    is_cell = fullname.startswith("tensorflow.python.ops.")
    path = _CELLS if is_cell else fullname.removeprefix(_COPY + ".").split(".")[:1]
    return below(_public(home, "_v2" if fullname.endswith("_v2") else "_v1"), path)


def serve_cells(module: ModuleType) -> None:
    """Put the cells of Keras 2 in the place of a loaded ``tensorflow.compat.v1.nn.rnn_cell``, for the whole process.

    `tf.nn.rnn_cell` has them, too, until this module is imported: it has those of TensorFlow's own copy of Keras.
    """
    home = counterpart("tensorflow.python.ops.rnn_cell")
    cells = None if home is None or not is_wanted() else below(_public(home), _CELLS)
    if cells is not None:
        sys.modules[module.__name__] = cells


def _public(home: str, version: str = "_v1") -> ModuleType:
    return importlib.import_module(f"{home.partition('.')[0]}.api.{version}.keras")


def below(module: ModuleType, path: list[str]) -> Any:
    """Return an attribute of a module by its path, None if there is none."""
    value: Any = module
    return functools.reduce(lambda above, name: getattr(above, name, None), path, value)


def _absent_module(below: str) -> ModuleType:
    def refuse(name: str) -> NoReturn:
        raise RemovedNameError(
            f"tf.{below}.{name} needs Keras 2, and this TensorFlow comes with Keras 3. Install Keras 2 as well: "
            "pip install tf_keras. The program itself needs no change."
        )

    return views.lazy(ModuleType(f"tensorflow.{below}"), refuse)


class Covered(ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, covered: Any, names: dict[str, Any]) -> None:
        super().__init__(covered.__name__, covered.__doc__)
        self.__dict__.update(names)
        self.__dict__["_covered"] = covered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covered, name)

    def __dir__(self) -> list[str]:
        return dir(self._covered)
