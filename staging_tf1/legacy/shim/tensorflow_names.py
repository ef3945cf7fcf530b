"""What programs of TensorFlow 1 find in other places or changed in TensorFlow 2.15 to 2.21."""

from __future__ import annotations

from staging_tf1.legacy.shim.tables import TENSORFLOW


def _modules_of(owner: str) -> list[str]:
    """Return the modules that are a part of the public API, such as "tf.nn"; any other owner is a module itself."""
    if owner.startswith("tf.keras"):
        return [f"{root}.api._v1.{owner.removeprefix('tf.')}" for root in ("keras", "tf_keras")]
    return [f"tensorflow._api.v2.compat.v1.{owner.removeprefix('tf.')}" if owner.startswith("tf.") else owner]


# Module -> missing name -> current home; see tables.py.
NAMES = {
    **{module: names for owner, names in TENSORFLOW.names.items() for module in _modules_of(owner)},
    "tensorflow.python.data.experimental.ops.iterator_ops": TENSORFLOW.names["tf.data.experimental"],
    "tensorflow.contrib.data": TENSORFLOW.names["tf.data.experimental"],
}
MODULES = TENSORFLOW.modules

# Class of tensorflow.python.framework.ops -> private attribute that programs read -> its name today.
ATTRIBUTES: dict[str, dict[str, str]] = {
    "Graph": {"_last_id": "version", "_next_id_counter": "version", "_version": "version"},
    "Operation": {
        "_control_inputs": "control_inputs",
        "_graph": "graph",
        "_inputs": "inputs",
        "_outputs": "outputs",
        "_traceback": "traceback",
    },
}


# Names that programs find changed. Module -> name -> home of what they see.
FACES: dict[str, dict[str, str]] = {
    # The module chooses the class when it is imported, before v2 behavior is switched off.
    "tensorflow.python.framework.device": {"DeviceSpec": "tensorflow.compat.v1:DeviceSpec"},
    "tensorflow.python.framework.test_util": {
        "run_in_graph_and_eager_modes": "staging_tf1.legacy.shim.old_names:run_in_graph_and_eager_modes"
    },
    "tensorflow.python.ops.data_flow_ops": {
        name: f"staging_tf1.legacy.contrib.staging:{name}" for name in ("StagingArea", "MapStagingArea")
    },
    # tf.contrib.framework removes the names that it does not document from TensorFlow's own modules.
    "tensorflow.python.util.all_util": {
        "remove_undocumented": "staging_tf1.legacy.contrib.modules:remove_undocumented"
    },
}

# Modules of TensorFlow in whose place programs see those of Keras 2: one class of each name serves tf.keras,
# tf.layers, tf.nn.rnn_cell and what is imported from here. Module of TensorFlow -> module of Keras 2.
KERAS_TWO = {
    **{
        f"tensorflow.python.layers.{name}": f"legacy_tf_layers.{name}"
        for name in ("base", "convolutional", "core", "normalization", "pooling")
    },
    "tensorflow.python.ops.rnn_cell_impl": "layers.rnn.legacy_cells",
    "tensorflow.python.ops.rnn_cell": "layers.rnn.legacy_cells",
    # Those before tf.keras.optimizers: their Adagrad begins at 0.
    "tensorflow.python.keras.optimizers": "optimizers.optimizer_v1",
}

# Modules of TensorFlow 1.15.5 outside tf.contrib that are gone, and that are lent with it.
LENT_FILES = ("tensorflow.python.ops.distributions.transformed_distribution",)
