"""What became of the names of TensorFlow 1 and of numpy, for tools that import neither.

All are dotted names. "tensorflow." stands for the name of compat.v1 in a file.
"""

from __future__ import annotations

from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.contrib.homes import LOST, OURS, PARTS
from staging_tf1.legacy.shim import old_names
from staging_tf1.legacy.shim.tables import NUMPY, PYTHON, TENSORFLOW, Gone

CONTRIB = "tensorflow.contrib"
MODULES = TENSORFLOW.modules
# What stands below the public API.
_PRIVATE = "tensorflow.python."
_MNIST = "tensorflow.examples.tutorials.mnist.input_data"
_SERVED = "staging_tf1.contrib"
# Other names of the same module: migrated code is read like original code.
_SAME = (("tensorflow.compat.v1", "tensorflow"), ("tensorflow_core", "tensorflow"))
_NUMPY_HOMES = ("builtins.", "numpy.")
_AREAS = ("StagingArea", "MapStagingArea")


def _moves() -> dict[str, str]:
    moves = {
        f"{owner}.{name}": home.replace(":", ".")
        for owner, names in NUMPY.names.items()
        for name, home in names.items()
    }
    moves = {name: home.removeprefix("builtins.") for name, home in moves.items() if home.startswith(_NUMPY_HOMES)}
    for part, names in homes.EQUIVALENTS.items():
        moves |= {f"{CONTRIB}.{part}.{name}": f"tensorflow.{home}" for name, home in names.items()}
    moves |= {f"tensorflow.estimator.{name}": f"tensorflow.train.{name}" for name in homes.ESTIMATOR_HOOKS}
    moves |= {f"tensorflow.python.ops.data_flow_ops.{name}": f"staging_tf1.{name}" for name in _AREAS}
    moves |= {
        f"{CONTRIB}.staging": "staging_tf1",
        **{f"{CONTRIB}.{part}": f"{_SERVED}.{part}" for part in PARTS if part not in {*OURS, *LOST}},
        **{
            f"{CONTRIB}.{part}.{name}": f"{_SERVED}.{part}.{name}"
            for part, ours in OURS.items()
            for name in ours.names
            if part != "staging"
        },
        # It only passes on the names of this module.
        _MNIST: f"{_SERVED}.learn.python.learn.datasets.mnist",
        "tensorflow.estimator.train_and_evaluate": "",
    }
    return {name: home for name, home in moves.items() if home}


# Full old name -> full new name.
MOVES = _moves()


def plain(full: str) -> str:
    """Return a name as TensorFlow 1 has it.

    >>> plain("tensorflow.compat.v1.train.Saver")
    'tensorflow.train.Saver'
    """
    for other, name in _SAME:
        if full == other or full.startswith(other + "."):
            return name + full[len(other) :]
    return full


def short(full: str) -> str:
    """Return a name as messages show it.

    >>> short("tensorflow.train.Saver")
    'tf.train.Saver'
    """
    return full.replace("tensorflow.", "tf.", 1)


def moved(full: str) -> str | None:
    """Return the new name of `full`; None if it stays or cannot move."""
    if full in MOVES or lost(full) is not None:
        return MOVES.get(full)
    for module in (".".join(full.split(".")[:3]), _MNIST):
        if module in MOVES and full.startswith(f"{module}."):
            return MOVES[module] + full.removeprefix(module)
    return None


def lost(full: str) -> str | None:
    """Return what to use instead of a name of `tf.contrib` whose ops are lost, "" for nothing; None for other names."""
    path = full.removeprefix(CONTRIB + ".").split(".")
    return LOST.get(path[0], LOST.get(".".join(path[:2]))) if full.startswith(CONTRIB + ".") else None


def advice(full: str) -> str | None:
    """Return what to do by hand about a removed name without an exact replacement; None for any other name."""
    if full == CONTRIB:
        return "import the part of tf.contrib that is used, such as staging_tf1.contrib.layers"
    if full.startswith(CONTRIB + "."):
        part = full.split(".")[2]
        if (left := MODULES.get(f"{CONTRIB}.{part}")) is not None:
            return f"it left tf.contrib before 1.15. {_of_module(left)}"
        if part not in PARTS:
            return f"TensorFlow 1.15 had no tf.contrib.{part}"
        instead = OURS[part].instead if part in OURS else lost(full)
        return f"use {instead}" if instead else "it has no replacement; rewrite the code that uses it"
    if full == "tensorflow.estimator" or full.startswith("tensorflow.estimator."):
        return (
            "tf.estimator was removed in TensorFlow 2.16: call staging_tf1.legacy.install(only=['estimator']) before "
            "tensorflow is imported, or write the loop with tf.train.MonitoredTrainingSession"
        )
    if full.startswith("tensorflow.examples."):
        return "tensorflow.examples was removed; only the data of the MNIST tutorial has a home here"
    return NUMPY.advice.get(full) or PYTHON.advice.get(full)


def what_is_missing(full: str) -> str | None:
    """Return what to do about a name of `tf.contrib` that `run` does not bring back; None if it does."""
    if full == CONTRIB:
        return None
    part, *below = full.removeprefix(CONTRIB + ".").split(".")
    if part.startswith("__") or f"{CONTRIB}.{part}" in MODULES:
        return None
    if part not in PARTS:
        return f"TensorFlow 1.15 had no tf.contrib.{part}; check the spelling"
    instead = lost(full)
    if instead is not None:
        return f"its ops were in a binary of TensorFlow 1; {_use(instead)}"
    ours = OURS.get(part)
    if ours is None or not below or below[0] in ("python", *ours.names) or below[0].startswith("__"):
        return None
    return f"staging-tf1 does not bring it back; {_use(ours.instead)}"


def _use(instead: str) -> str:
    return f"use {instead}" if instead else "rewrite the code that uses it"


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
    if home is not None and home.startswith("staging_tf1.legacy"):
        saves = name == "CheckpointInputPipelineHook"
        return "Use staging_tf1.staged(), which saves its position." if saves else "It has no public replacement."
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
