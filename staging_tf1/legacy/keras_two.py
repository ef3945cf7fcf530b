"""`tf.layers` and `tf.nn.rnn_cell`, which need Keras 2. Without it, their use raises an error that names tf_keras."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy import views


def without_keras_two(module: ModuleType, v1: Any) -> dict[str, Any]:
    """Return stand-ins for the Keras 2 names of `module`, by name; an empty dict if Keras 2 is installed."""
    if has_keras_two():
        return {}
    cell = _AbsentModule("tensorflow.nn.rnn_cell", "tf.nn.rnn_cell")
    return {
        # compat.v1.keras exists for Keras 2 only; the rest of the process uses Keras 3.
        "keras": views.own(module, "keras"),
        "layers": _AbsentModule("tensorflow.layers", "tf.layers"),
        "nn": _Covered(v1.nn, {"rnn_cell": cell}),
    }


def has_keras_two() -> bool:
    """Whether Keras 2 is installed: as tf_keras, or as the Keras of TensorFlow 2.15."""
    if importlib.util.find_spec("tf_keras") is not None:
        return True
    found = importlib.util.find_spec("keras")
    if found is None:
        return False
    version = str(importlib.import_module("keras").__version__)
    return version.startswith("2.")


class _AbsentModule(ModuleType):
    def __init__(self, name: str, shown: str) -> None:
        super().__init__(name)
        self.__dict__["_shown"] = shown

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RemovedNameError(
            f"{self._shown}.{name} needs Keras 2, and this TensorFlow comes with Keras 3. Install Keras 2 as well: "
            "pip install tf_keras. The program itself needs no change."
        )


class _Covered(ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, covered: Any, names: dict[str, Any]) -> None:
        super().__init__(covered.__name__, covered.__doc__)
        self.__dict__.update(names)
        self.__dict__["_covered"] = covered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._covered, name)

    def __dir__(self) -> list[str]:
        return dir(self._covered)
