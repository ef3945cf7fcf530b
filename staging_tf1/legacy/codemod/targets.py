"""The new name of each name that moves, as dotted names, determined without importing TensorFlow."""

from __future__ import annotations

from staging_tf1.legacy import numpy_names
from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.contrib.advice import replacement_of

CONTRIB = "tensorflow.contrib"
_RNN_CELLS = (
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell "
    "RNNCell ResidualWrapper"
).split()
_RNN = "static_bidirectional_rnn static_rnn static_state_saving_rnn".split()
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
    for part, names in homes.ALIASES.items():
        for name, home in names.items():
            module, _, attribute = home.partition(":")
            moves[f"{CONTRIB}.{part}.{name}"] = f"{module}.{attribute}" if attribute else f"tensorflow.{home}"
    # Its home is tf.estimator, which was also removed from TensorFlow.
    del moves[f"{CONTRIB}.training.StopAfterNEvalsHook"]
    moves |= {name: home.replace(":", ".") for name, home in homes.OURS.items()}
    moves |= {f"{CONTRIB}.rnn.{name}": f"tensorflow.nn.rnn_cell.{name}" for name in _RNN_CELLS}
    moves |= {f"{CONTRIB}.rnn.{name}": f"tensorflow.nn.{name}" for name in _RNN}
    moves |= {f"tensorflow.estimator.{name}": f"tensorflow.train.{name}" for name in homes.ESTIMATOR_HOOKS}
    moves |= {f"tensorflow.python.ops.data_flow_ops.{name}": f"staging_tf1.{name}" for name in _AREAS}
    moves |= {
        f"{CONTRIB}.staging": "staging_tf1",
        f"{CONTRIB}.slim": "tf_slim",
        f"{CONTRIB}.data": "tensorflow.data.experimental",
        "tensorflow.estimator.train_and_evaluate": "",
    }
    return {name: home for name, home in moves.items() if home}


# Modules that moved with all their names.
_WHOLE_MODULES = {f"{CONTRIB}.staging", f"{CONTRIB}.slim", f"{CONTRIB}.data"} | set(homes.OURS)
# Full old name -> full new name; "tensorflow." stands for the name of compat.v1 in the file.
MOVES = _moves()


def moved(full: str) -> str | None:
    """Return the new name of `full`; None if it stays or cannot move."""
    if full in MOVES:
        return MOVES[full]
    head, _, last = full.rpartition(".")
    if head in _WHOLE_MODULES:
        return f"{MOVES[head]}.{last}"
    return None


def advice(full: str) -> str | None:
    """Return what to do by hand about a removed name without an exact replacement; None for any other name."""
    if full == CONTRIB:
        return "import the part of tf.contrib that is used; tf.contrib as a whole has no replacement"
    if full.startswith(CONTRIB + "."):
        part, *names = full.split(".")[2:]
        replacement = replacement_of(part, names[0]) if names else None
        if replacement is None:
            replacement = homes.REPLACEMENTS.get(part)
        if replacement is None:
            return f"TensorFlow 1.15 had no tf.contrib.{part}"
        return f"use {replacement}" if replacement else "it has no replacement; rewrite the code that uses it"
    if full == "tensorflow.estimator" or full.startswith("tensorflow.estimator."):
        return "tf.estimator was removed in TensorFlow 2.16: write the loop with tf.train.MonitoredTrainingSession"
    if full.startswith("tensorflow.examples."):
        return "tensorflow.examples was removed; only the data and the network of the MNIST tutorial have a home here"
    if full.startswith("numpy."):
        return _NUMPY_ADVICE.get(full.removeprefix("numpy."))
    if full == "inspect.getargspec":
        return "use inspect.getfullargspec, whose result has more fields, or inspect.signature"
    return None
