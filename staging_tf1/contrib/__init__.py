"""The names of `tf.contrib` and of the MNIST tutorial that TensorFlow 2 lacks and this package has.

`staging-tf1 migrate` writes these names. Each module has the names of the part of `tf.contrib` with the same name.
Modules load on first use, and TensorFlow with them.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["data", "layers", "mnist", "mnist_model", "rnn", "training"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'staging_tf1.contrib' has no attribute {name!r}")
    return importlib.import_module(f"staging_tf1.contrib.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
