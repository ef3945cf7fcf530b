"""The new name of each name that moves, as dotted names, determined without importing TensorFlow."""

from __future__ import annotations

from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.contrib.names import LOST
from staging_tf1.legacy.shim import numpy_names

CONTRIB = "tensorflow.contrib"
_MNIST = "tensorflow.examples.tutorials.mnist.input_data"
_SERVED = "staging_tf1.contrib"
_NUMPY_HOMES = ("builtins.", "numpy.")
_AREAS = ("StagingArea", "MapStagingArea")
# What to write for names of numpy that have no exact equivalent.
_NUMPY_ADVICE = {
    "alen": "use len(a)",
    "asfarray": "use np.asarray(a, np.float64)",
    "asscalar": "use a.item()",
    "cast": "use np.asarray(a).astype(dtype)",
    "disp": "use print()",
    "fastCopyAndTranspose": "use a.T.copy()",
    "find_common_type": "use np.result_type()",
    "issctype": "use isinstance(t, type) and issubclass(t, np.generic)",
    "issubclass_": "use issubclass()",
    "issubsctype": "use np.issubdtype()",
    "loads": "use pickle.loads()",
    "math": "import math",
    "maximum_sctype": "name the type, such as np.float64",
    "msort": "use np.sort(a, axis=0)",
    "nbytes": "use np.dtype(t).itemsize",
    "NINF": "use -np.inf",
    "NZERO": "use -0.0",
    "obj2sctype": "use np.dtype(t).type",
    "PZERO": "use 0.0",
    "safe_eval": "use ast.literal_eval()",
    "sctype2char": "use np.dtype(t).char",
    "sctypes": "list the types, such as np.float32",
}


def _moves() -> dict[str, str]:
    moves = {f"numpy.{name}": home.replace(":", ".") for name, home in numpy_names.NAMES.items()}
    moves |= {f"numpy.lib.{name}": home.replace(":", ".") for name, home in numpy_names.LIB.items()}
    moves = {name: home.removeprefix("builtins.") for name, home in moves.items() if home.startswith(_NUMPY_HOMES)}
    for part, names in homes.EQUIVALENTS.items():
        moves |= {f"{CONTRIB}.{part}.{name}": f"tensorflow.{home}" for name, home in names.items()}
    moves |= {f"tensorflow.estimator.{name}": f"tensorflow.train.{name}" for name in homes.ESTIMATOR_HOOKS}
    moves |= {f"tensorflow.python.ops.data_flow_ops.{name}": f"staging_tf1.{name}" for name in _AREAS}
    moves |= {
        f"{CONTRIB}.staging": "staging_tf1",
        **{f"{CONTRIB}.{part}": f"{_SERVED}.{part}" for part in homes.PARTS if part not in {*homes.OURS, *LOST}},
        **{
            f"{CONTRIB}.{part}.{name}": f"{_SERVED}.{part}.{name}"
            for part, ours in homes.OURS.items()
            for name in ours.names.split()
            if part != "staging"
        },
        # It only passes on the names of this module.
        _MNIST: f"{_SERVED}.learn.python.learn.datasets.mnist",
        "tensorflow.estimator.train_and_evaluate": "",
    }
    return {name: home for name, home in moves.items() if home}


# Full old name -> full new name; "tensorflow." stands for the name of compat.v1 in the file.
MOVES = _moves()


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
        if part not in homes.PARTS:
            return f"TensorFlow 1.15 had no tf.contrib.{part}"
        instead = homes.OURS[part].instead if part in homes.OURS else lost(full)
        return f"use {instead}" if instead else "it has no replacement; rewrite the code that uses it"
    if full == "tensorflow.estimator" or full.startswith("tensorflow.estimator."):
        return (
            "tf.estimator was removed in TensorFlow 2.16: call staging_tf1.legacy.install(only=['estimator']) before "
            "tensorflow is imported, or write the loop with tf.train.MonitoredTrainingSession"
        )
    if full.startswith("tensorflow.examples."):
        return "tensorflow.examples was removed; only the data of the MNIST tutorial has a home here"
    if full.startswith("numpy."):
        return _NUMPY_ADVICE.get(full.removeprefix("numpy."))
    if full == "inspect.getargspec":
        return "use inspect.getfullargspec, whose result has more fields, or inspect.signature"
    return None
