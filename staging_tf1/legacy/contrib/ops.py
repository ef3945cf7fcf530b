"""The ops of `tf.contrib`'s binaries, made of TensorFlow's own ops."""

from __future__ import annotations

import os
from typing import Any

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib.absent import absent


def library(path: str) -> Any:
    """Return a stand-in for a binary with ops. Its ops are called through the functions of generated modules."""
    return absent(f"{os.path.basename(path)} is a binary of TensorFlow 1.15.5, which the installed TensorFlow cannot load.")


def call(op: str, module: str, **arguments: Any) -> Any:
    """Return the outputs of an op. Raises RemovedNameError for one that is not restored."""
    part = ".".join(module.split(".")[1:3])
    raise RemovedNameError(
        f"the op {op} of tf.{part} is in a binary of TensorFlow 1.15.5, which the installed TensorFlow cannot load, and "
        "staging_tf1 does not replace it."
    )
