"""The new name of each name that moves, as dotted names, determined without importing TensorFlow."""

from __future__ import annotations

from staging_tf1.legacy.contrib import homes

CONTRIB = "tensorflow.contrib"
_RNN_CELLS = (
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell "
    "RNNCell ResidualWrapper"
).split()
_RNN = "static_bidirectional_rnn static_rnn static_state_saving_rnn".split()
_AREAS = ("StagingArea", "MapStagingArea")
# Removed names of numpy and Python that have an exact equivalent.
_OLD = {
    "numpy.object": "object",
    "numpy.float": "float",
    "numpy.int": "int",
    "numpy.bool": "bool",
    "numpy.str": "str",
    "numpy.complex": "complex",
    "numpy.unicode": "str",
    "numpy.Inf": "numpy.inf",
    "numpy.NaN": "numpy.nan",
    "numpy.product": "numpy.prod",
    "numpy.float_": "numpy.float64",
    "numpy.unicode_": "numpy.str_",
    "numpy.string_": "numpy.bytes_",
}


def _moves() -> dict[str, str]:
    moves = dict(_OLD)
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
        part = full.split(".")[2]
        replacement = homes.REPLACEMENTS.get(part)
        if replacement is None:
            return f"TensorFlow 1.15 had no tf.contrib.{part}"
        return f"use {replacement}" if replacement else "it has no replacement; rewrite the code that uses it"
    if full == "tensorflow.estimator" or full.startswith("tensorflow.estimator."):
        return "tf.estimator was removed in TensorFlow 2.16: write the loop with tf.train.MonitoredTrainingSession"
    if full.startswith("tensorflow.examples."):
        return "tensorflow.examples was removed; only the data and the network of the MNIST tutorial have a home here"
    if full == "inspect.getargspec":
        return "use inspect.getfullargspec, whose result has more fields, or inspect.signature"
    return None
