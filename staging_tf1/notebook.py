"""`%load_ext staging_tf1`: TensorFlow 1 for the code of a notebook, and a list of its pipelines."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from staging_tf1.arguments import refuse
from staging_tf1.errors import NotebookWarning, warn
from staging_tf1.legacy import install
from staging_tf1.legacy.shim.installation import is_installed

_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
# Values of these types are the same in both versions.
_HARMLESS = ("DType", "TensorShape")


def load(shell: Any) -> None:
    """Make the code of a notebook TensorFlow 1, and add the magics. IPython calls it for ``%load_ext staging_tf1``.

    Raises:
      TypeError: `shell` is not IPython's.
      RuntimeError: `staging_tf1.legacy.install` was called with ``only=`` before.
    """
    if not hasattr(shell, "register_magic_function"):
        refuse(
            "load_ipython_extension()",
            "shell",
            shell,
            "IPython's shell, which %load_ext staging_tf1 passes. A program calls staging_tf1.legacy.install()",
        )
    older = _made_by_two(shell.user_ns)
    if not is_installed():
        install(old_names=True)
    shell.register_magic_function(_tensorflow_version, "line", "tensorflow_version")
    shell.register_magic_function(_staging, "line", "staging")
    if older:
        warn(
            f"%load_ext staging_tf1: earlier cells have {_listed(older)} from TensorFlow 2, which does not fit into "
            "graphs of TensorFlow 1. Put %load_ext staging_tf1 into the first cell, restart the kernel, and run all "
            "cells.",
            NotebookWarning,
        )


def _tensorflow_version(line: str) -> None:
    """Accept TensorFlow 1, which is already chosen, and refuse any other: ``%tensorflow_version 1.x``, as in Colab."""
    wanted = line.split("#")[0].strip()
    if wanted and not re.fullmatch(r"1(\.(x|\d+(\.\d+)?))?", wanted):
        _refuse_version(wanted)
    print("TensorFlow 1.x selected.")


def _refuse_version(wanted: str) -> None:
    from IPython.core.error import UsageError

    if re.fullmatch(r"2(\.(x|\d+(\.\d+)?))?", wanted):
        raise UsageError(
            f"%tensorflow_version got {wanted}, but this process is TensorFlow 1 until it ends. For TensorFlow 2, "
            "restart the kernel and run the notebook without %load_ext staging_tf1."
        )
    raise UsageError(f"%tensorflow_version got {wanted}, expected 1.x.")


def _staging(line: str) -> None:
    """Print the pipelines of the default graph, one a line: ``%staging``."""
    if line.strip():
        from IPython.core.error import UsageError

        raise UsageError(f"%staging got {line.strip()!r}, expected no arguments.")
    from staging_tf1._tf import tf
    from staging_tf1.feed.pipeline import pipelines_of

    print("\n".join(map(str, pipelines_of(tf.get_default_graph()))) or "The default graph has no pipeline.")


def _made_by_two(names: Mapping[str, Any]) -> list[str]:
    """Return the names of what TensorFlow 2 has made or Keras 3 defines, in the order of the notebook."""
    loaded = sys.modules.get("tensorflow")
    if loaded is None or not loaded.executing_eagerly():
        return []
    return [name for name, value in names.items() if not name.startswith("_") and _is_of_tensorflow(value)]


def _is_of_tensorflow(value: Any) -> bool:
    home = getattr(value, "__module__", None)  # of a class, a function, or the class of an object; a module has none
    return isinstance(home, str) and home.partition(".")[0] in _TENSORFLOW and type(value).__name__ not in _HARMLESS


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
