"""Names below TensorFlow's public API that TensorFlow 2 has removed, for tools that must not import TensorFlow."""

from __future__ import annotations

from staging_tf1.legacy.shim import old_names
from staging_tf1.legacy.shim.tensorflow_names import MODULES, Gone

_PRIVATE = "tensorflow.python."


def instead_of(full: str) -> str | None:
    """Return what to use instead of a removed name of ``tensorflow.python``, as a sentence; None if it is not gone.

    >>> instead_of("tensorflow.python.ops.array_ops.stack")
    'Use tf.stack.'
    >>> instead_of("tensorflow.python.ops.array_ops.concat") is None
    True
    """
    if not full.startswith(_PRIVATE):
        return None
    module, _, name = full.rpartition(".")
    home = old_names.MODULES.get(module, {}).get(name)
    if home is not None and home.startswith("!"):
        return home[1:]
    if home is not None:
        return f"Use {_shown(home)}."
    while module.startswith(_PRIVATE):
        if module in MODULES:
            return _of_module(MODULES[module])
        module = module.rpartition(".")[0]
    return _of_module(MODULES[full]) if full in MODULES else None


def is_restored(full: str) -> bool:
    """Return whether programs under `staging-tf1 run` find a removed name, and can use it.

    >>> is_restored("tensorflow.python.ops.array_ops.stack")
    True
    >>> is_restored("tensorflow.python.eager.profiler.start")
    False
    """
    module, _, name = full.rpartition(".")
    home = old_names.MODULES.get(module, {}).get(name)
    if home is not None:
        return not home.startswith("!")
    gone = MODULES.get(full) or MODULES.get(module)
    return gone is not None and bool(gone.homes)


def _of_module(gone: Gone) -> str:
    if not gone.homes:
        return gone.advice
    return f"Look for it in {' and '.join(map(_shown, gone.homes))}. {gone.advice}"


def _shown(home: str) -> str:
    return home.replace(":", ".").replace("tensorflow.compat.v1", "tf", 1)
