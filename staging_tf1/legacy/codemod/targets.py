"""Where each name that has to move goes, as dotted names; decided without TensorFlow."""

from __future__ import annotations

from staging_tf1.legacy.contrib import homes

CONTRIB = "tensorflow.contrib"
_RNN_CELLS = (
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell "
    "RNNCell ResidualWrapper"
).split()
_RNN = "static_bidirectional_rnn static_rnn static_state_saving_rnn".split()
_HOOKS = (
    "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook "
    "NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer SessionRunArgs SessionRunContext "
    "SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook"
).split()
_AREAS = ("StagingArea", "MapStagingArea")
# Names of numpy and Python that are gone, where a name of today says exactly the same.
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
    # It lived in tf.estimator, which left TensorFlow too.
    del moves[f"{CONTRIB}.training.StopAfterNEvalsHook"]
    moves |= {f"{CONTRIB}.rnn.{name}": f"tensorflow.nn.rnn_cell.{name}" for name in _RNN_CELLS}
    moves |= {f"{CONTRIB}.rnn.{name}": f"tensorflow.nn.{name}" for name in _RNN}
    moves |= {f"tensorflow.estimator.{name}": f"tensorflow.train.{name}" for name in _HOOKS}
    moves |= {f"tensorflow.python.ops.data_flow_ops.{name}": f"staging_tf1.{name}" for name in _AREAS}
    moves |= {
        f"{CONTRIB}.staging": "staging_tf1",
        f"{CONTRIB}.slim": "tf_slim",
        f"{CONTRIB}.data": "tensorflow.data.experimental",
        "tensorflow.estimator.train_and_evaluate": "",
    }
    return {name: home for name, home in moves.items() if home}


# Full old name -> full new name; "tensorflow." stands for whatever compat.v1 is called in the file.
MOVES = _moves()


def moved(full: str) -> str | None:
    """The new name of `full` or of the module that it lies in; None where it stays or cannot move."""
    if full in MOVES:
        return MOVES[full]
    head, _, last = full.rpartition(".")
    if head in (f"{CONTRIB}.staging", f"{CONTRIB}.slim", f"{CONTRIB}.data"):
        return f"{MOVES[head]}.{last}"
    return None


def advice(full: str) -> str | None:
    """What to do by hand about a name that is gone and has no exact successor; None for any other name."""
    if full == CONTRIB:
        return "import the part of tf.contrib that is used; tf.contrib as a whole has no successor"
    if full.startswith(CONTRIB + "."):
        part = full.split(".")[2]
        went = homes.WHERE_IT_WENT.get(part)
        if went is None:
            return f"TensorFlow 1.15 had no tf.contrib.{part}"
        return "it has no successor; rewrite the part that uses it" if went == "nowhere" else f"use {went}"
    if full == "tensorflow.estimator" or full.startswith("tensorflow.estimator."):
        return "tf.estimator left TensorFlow with 2.16: write the loop with tf.train.MonitoredTrainingSession"
    if full.startswith("tensorflow.examples."):
        return "tensorflow.examples is gone: read the data set with staging_tf1.sources or tensorflow_datasets"
    if full == "inspect.getargspec":
        return "use inspect.getfullargspec, whose result has more fields, or inspect.signature"
    return None
