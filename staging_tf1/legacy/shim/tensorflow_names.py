"""Names below TensorFlow's public API that old programs import and TensorFlow 2.15 to 2.21 has elsewhere, or not.

tests/legacy/private_names.py finds them: it compares what programs use with TensorFlow 1.15.5 and later versions.
"""

from __future__ import annotations

from typing import NamedTuple

_V1 = "tensorflow.compat.v1"


def _public(*names: str, under: str = "") -> dict[str, str]:
    return {name: f"{_V1}:{under}{name}" for name in names}


def _in(module: str, *names: str) -> dict[str, str]:
    return {name: f"tensorflow.python.{module}:{name}" for name in names}


_SHAPE_FUNCTIONS = """avg_pool_shape call_cpp_shape_fn conv2d_shape depthwise_conv2d_native_shape get2d_conv_output_size
get_conv_output_size matmul_shape max_pool_shape no_outputs scalar_shape separable_conv2d_shape unchanged_shape
unchanged_shape_with_rank unchanged_shape_with_rank_at_least unchanged_shape_with_rank_at_most""".split()
_MULTI_GPU = {"multi_gpu_model": "!Build the model in the scope of a tf.distribute.MirroredStrategy."}
# Module -> missing name -> current home ("module:attribute", where the attribute may be a path), or "!" and what to do
# instead: then the name can be imported, and its use raises.
NAMES: dict[str, dict[str, str]] = {
    "tensorflow.python.data.experimental.ops.iterator_ops": {
        "CheckpointInputPipelineHook": "!Use staging_tf1.staged(), which saves its position."
    },
    "tensorflow.python.data.ops.iterator_ops": {
        "IteratorV2": "tensorflow.python.data.ops.iterator_ops:OwnedIterator",
    },
    "tensorflow.python.data.ops.dataset_ops": _public("Options", under="data."),
    "tensorflow.python.distribute.distribute_lib": _public("get_loss_reduction", under="distribute."),
    "tensorflow.python.distribute.input_lib": {"DatasetIterator": "!Use strategy.make_dataset_iterator()."},
    "tensorflow.python.distribute.parameter_server_strategy": {
        "ParameterServerStrategy": "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyV1",
    },
    "tensorflow.python.eager.context": {
        **_public("VirtualDeviceConfiguration", under="config.experimental."),
        "list_devices": "tensorflow.python.framework.config:list_logical_devices",
    },
    "tensorflow.python.eager.function": {"defun": f"{_V1}:function"},
    "tensorflow.python.eager.tape": _in("eager.record", "record_operation", "stop_recording"),
    "tensorflow.python.feature_column.feature_column_lib": _public("DenseFeatures", under="keras.layers."),
    "tensorflow.python.feature_column.feature_column_v2": _public("DenseFeatures", under="keras.layers."),
    "tensorflow.python.framework.config": _public(
        "get_virtual_device_configuration", "set_virtual_device_configuration", under="config.experimental."
    ),
    "tensorflow.python.framework.graph_util": _public("convert_variables_to_constants", under="graph_util."),
    "tensorflow.python.framework.graph_util_impl": _public("convert_variables_to_constants", under="graph_util."),
    "tensorflow.python.framework.common_shapes": {
        **dict.fromkeys(_SHAPE_FUNCTIONS, "!TensorFlow infers shapes by itself."),
        "unknown_shape": "staging_tf1.legacy.shim.old_names:unknown_shape",
    },
    "tensorflow.python.framework.op_def_library": {
        "OpDefLibrary": "staging_tf1.legacy.shim.old_names:OpDefLibrary",
    },
    "tensorflow.python.framework.op_def_registry": {
        "get_registered_ops": "staging_tf1.legacy.shim.old_names:get_registered_ops",
        "register_op_list": "staging_tf1.legacy.shim.old_names:register_nothing",
    },
    "tensorflow.python.framework.ops": {
        # TensorFlow 2 needs neither: shape functions come with the kernels, and any class can be converted.
        "RegisterShape": "staging_tf1.legacy.shim.old_names:register_nothing",
        "register_dense_tensor_like_type": "staging_tf1.legacy.shim.old_names:register_nothing",
        **_public(
            "IndexedSlices",
            "Tensor",
            "convert_to_tensor_or_indexed_slices",
            "disable_tensor_equality",
            "enable_tensor_equality",
            "register_tensor_conversion_function",
        ),
        **_in("framework.stack", "default_session"),
        **_in("framework.tensor_conversion", "convert_to_tensor_v2"),
        **_in(
            "framework.indexed_slices",
            "IndexedSlicesValue",
            "convert_n_to_tensor_or_indexed_slices",
            "internal_convert_n_to_tensor_or_indexed_slices",
            "internal_convert_to_tensor_or_indexed_slices",
        ),
    },
    "tensorflow.python.framework.tensor_shape": {
        name: f"staging_tf1.legacy.shim.old_names:{name}" for name in ("matrix", "scalar", "vector")
    },
    "tensorflow.python.framework.tensor_util": _in("ops.shape_util", "maybe_set_static_shape", "shape_tensor"),
    "tensorflow.python.keras.utils.conv_utils": {"convert_kernel": "!It was for Theano's kernels."},
    "tensorflow.python.keras.utils.io_utils": {"HDF5Matrix": "!Use h5py."},
    "tensorflow.python.keras.utils.layer_utils": {"convert_all_kernels_in_model": "!It was for Theano's kernels."},
    "tensorflow.python.layers.normalization": {
        **_public("BatchNormalization", "batch_normalization", under="layers."),
        "BatchNorm": f"{_V1}:layers.BatchNormalization",
        "batch_norm": f"{_V1}:layers.batch_normalization",
    },
    "tensorflow.python.ops.array_ops": _public("stack", "unstack"),
    "tensorflow.python.ops.control_flow_ops": {
        **_public("Assert", "case", "cond", "switch_case", "while_loop"),
        "case_v2": "tensorflow.python.ops.control_flow_case:case_v2",
        "cond_for_tf_v2": "tensorflow.python.ops.cond:cond_for_tf_v2",
        "while_loop_v2": "tensorflow.python.ops.while_loop:while_loop_v2",
    },
    "tensorflow.python.ops.custom_gradient": _in("ops.handle_data_util", "copy_handle_data"),
    "tensorflow.python.ops.gradients_util": _in("eager.backprop_util", "IsTrainable"),
    "tensorflow.python.ops.math_ops": {
        **_public("bessel_i0e", "bessel_i1e", under="math."),
        "bincount_v1": f"{_V1}:math.bincount",
    },
    "tensorflow.python.ops.nn": _public(
        "bidirectional_dynamic_rnn", "dynamic_rnn", "raw_rnn", "static_rnn", "static_state_saving_rnn", under="nn."
    ),
    "tensorflow.python.ops.nn_impl": _public("compute_average_loss", "scale_regularization_loss", under="nn."),
    "tensorflow.python.ops.random_ops": _public("random_crop"),
    "tensorflow.python.ops.resource_variable_ops": {
        **_in("ops.ref_variable", "_from_proto_fn", "_to_proto_fn"),
        "variable_handle_from_shape_and_dtype": (
            "tensorflow.python.ops.resource_variable_ops:_variable_handle_from_shape_and_dtype"
        ),
    },
    "tensorflow.python.ops.variable_scope": {
        **_public("disable_resource_variables", "enable_resource_variables", "resource_variables_enabled"),
        **_in("ops.ref_variable", "default_variable_creator"),
        **_in("ops.resource_variable_ops", "default_variable_creator_v2"),
        "variable": f"{_V1}:Variable",
    },
    "tensorflow.python.ops.variables": {
        **_public("is_variable_initialized"),
        **_in("ops.ref_variable", "RefVariable", "default_variable_creator"),
        "VariableV1": f"{_V1}:Variable",
    },
    "tensorflow.python.pywrap_tensorflow": {
        **_public("NewCheckpointReader", under="train."),
        **_in("client._pywrap_events_writer", "EventsWriter"),
        **_in("client.pywrap_tf_session", "EqualGraphDefWrapper"),
        **dict.fromkeys(("DeleteStatSummarizer", "NewStatSummarizer", "StatSummarizer"), "!Use tf.profiler."),
    },
    "tensorflow.python.saved_model.utils_impl": _in(
        "saved_model.path_helpers",
        "get_assets_dir",
        "get_or_create_assets_dir",
        "get_or_create_variables_dir",
        "get_variables_dir",
        "get_variables_path",
    ),
    "tensorflow.python.ops.summary_ops_v2": {"create_db_writer": "!Use tf.compat.v2.summary.create_file_writer()."},
    "tensorflow.python.tpu.tpu": _in("tpu.tpu_replication", "_TPU_REPLICATE_ATTR"),
    "tensorflow.python.training.experimental.mixed_precision": _public(
        "disable_mixed_precision_graph_rewrite", "enable_mixed_precision_graph_rewrite", under="train.experimental."
    ),
    "tensorflow.python.util.nest": {"is_sequence": "tensorflow.python.util.nest:is_nested"},
    **{f"{keras}.api._v1.keras.utils": _MULTI_GPU for keras in ("keras", "tf_keras")},
}

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


class Gone(NamedTuple):
    """What became of a module."""

    homes: tuple[str, ...] = ()  # modules that have its names ("module" or "module:attribute")
    advice: str = "There is no replacement."  # for the names that none of these modules has


_DATA_OPTIONS = Gone((f"{_V1}:data", f"{_V1}:data.experimental"), "Use tf.data.Options.")
_GEN_TRAINING_OPS = Gone(("tensorflow.python.ops.gen_training_ops",), "Use tf.raw_ops.")
_STATISTICS = Gone((), "tf.data no longer measures statistics; profile with tf.profiler.")
_TRACKABLE = "Use tf.train.Checkpoint and tf.Module."
_CONTEXT = Gone(("tensorflow.python.distribute.distribute_lib",), "Use tf.distribute.")
_DISTRIBUTIONS = """bernoulli beta bijector_impl categorical dirichlet dirichlet_multinomial distribution exponential
gamma identity_bijector kullback_leibler laplace multinomial normal special_math student_t uniform""".split()
# Modules that left tf.contrib before 1.15.
_LEFT_CONTRIB = {
    "tensorflow.contrib.gan": Gone(("tensorflow_gan",), "Install it: pip install tensorflow-gan."),
    "tensorflow.contrib.lite": Gone((f"{_V1}:lite",), "Use tf.lite."),
    **{
        f"tensorflow.contrib.lite.{name}": Gone((f"tensorflow.lite.{name}",), "Use tf.lite.")
        for name in ("python", *(f"python.{file}" for file in "convert interpreter lite tflite_convert".split()))
    },
    "tensorflow.contrib.nccl": Gone(("tensorflow.python.ops.nccl_ops",), "Use tf.distribute."),
    **{
        f"tensorflow.contrib.distributions.python.ops.{name}": Gone((f"tensorflow.python.ops.distributions.{name}",))
        for name in _DISTRIBUTIONS
    },
}
# Modules that are gone and that old programs import at their top, though they may never use them.
MODULES: dict[str, Gone] = {
    **_LEFT_CONTRIB,
    "tensorflow.core.framework.remote_fused_graph_execute_info_pb2": Gone((), "The op that used it was removed, too."),
    "tensorflow.python.data.experimental.ops.distribute_options": _DATA_OPTIONS,
    "tensorflow.python.data.experimental.ops.optimization_options": _DATA_OPTIONS,
    "tensorflow.python.data.experimental.ops.stats_aggregator": _STATISTICS,
    "tensorflow.python.data.experimental.ops.stats_ops": _STATISTICS,
    "tensorflow.python.data.experimental.ops.stats_options": _STATISTICS,
    "tensorflow.python.data.experimental.ops.threading_options": _DATA_OPTIONS,
    "tensorflow.python.data.experimental.ops.threadpool": Gone(
        (),
        "Set Options().threading.private_threadpool_size of tf.data and pass the options to dataset.with_options().",
    ),
    "tensorflow.python.distribute.all_reduce": Gone(
        (), "There is no replacement; tf.distribute reduces over devices by itself."
    ),
    "tensorflow.python.distribute.distribution_strategy_context": _CONTEXT,
    "tensorflow.python.eager.execution_callbacks": Gone((), "Use tf.debugging.enable_check_numerics()."),
    "tensorflow.python.eager.profiler": Gone((), "Use tf.profiler.experimental.start() and stop()."),
    "tensorflow.python.framework.tensor_like": Gone((), "Use tf.is_tensor()."),
    "tensorflow.python.profiler.profile_context": Gone((), "Use tf.profiler.experimental or a ProfilerHook."),
    "tensorflow.python.training.distribute": _CONTEXT,
    "tensorflow.python.training.distribution_strategy_context": _CONTEXT,
    "tensorflow.python.training.gen_training_ops": _GEN_TRAINING_OPS,
    "tensorflow.python.training.tracking": Gone((), _TRACKABLE),
    "tensorflow.python.training.tracking.base": Gone(("tensorflow.python.trackable.base",), _TRACKABLE),
    "tensorflow.python.training.tracking.data_structures": Gone(
        ("tensorflow.python.trackable.data_structures",), _TRACKABLE
    ),
    "tensorflow.python.training.tracking.graph_view": Gone(("tensorflow.python.checkpoint.graph_view",), _TRACKABLE),
    "tensorflow.python.training.tracking.layer_utils": Gone(("tensorflow.python.trackable.layer_utils",), _TRACKABLE),
    "tensorflow.python.training.tracking.python_state": Gone(("tensorflow.python.trackable.python_state",), _TRACKABLE),
    "tensorflow.python.training.tracking.tracking": Gone(
        ("tensorflow.python.trackable.autotrackable", "tensorflow.python.trackable.resource"), _TRACKABLE
    ),
    "tensorflow.python.training.tracking.util": Gone(("tensorflow.python.checkpoint.checkpoint",), _TRACKABLE),
    "tensorflow.python.training.training_ops": _GEN_TRAINING_OPS,
    "tensorflow.python.util.deprecation_wrapper": Gone((), "Remove its use: it only printed warnings."),
    "tensorflow_estimator.contrib": Gone(
        ("staging_tf1.legacy.shim.estimator.contrib:estimator",), "The package tensorflow-estimator lacks it, too."
    ),
    "tensorflow.tools.graph_transforms": Gone((), "Use tf.lite, or tf.compat.v1.graph_util."),
}

# Names that programs find changed. Module -> name -> home of what they see.
FACES: dict[str, dict[str, str]] = {
    # The module chooses the class when it is imported, before v2 behavior is switched off.
    "tensorflow.python.framework.device": {"DeviceSpec": f"{_V1}:DeviceSpec"},
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
