"""The parts of `tf.contrib`: which of them are ours, and which names have a home in TensorFlow 2 or are lost."""

from __future__ import annotations

from typing import NamedTuple

# Every part of TensorFlow 1.15.5.
PARTS = frozenset(
    """all_reduce autograph batching bayesflow bigtable boosted_trees checkpoint cloud cluster_resolver compiler
    constrained_optimization copy_graph crf cudnn_rnn data decision_trees deprecated distribute distributions eager
    estimator factorization feature_column ffmpeg framework fused_conv graph_editor grid_rnn hadoop hooks ignite image
    input_pipeline integrate kafka keras kernel_methods kinesis labeled_tensor layers learn legacy_seq2seq libsvm
    linear_optimizer lookup losses memory_stats meta_graph_transform metrics mixed_precision model_pruning
    nearest_neighbor nn opt optimizer_v2 periodic_resample predictor proto quantization quantize receptive_field
    recurrent reduce_slice_ops remote_fused_graph resampler rnn rpc saved_model seq2seq session_bundle signal slim
    solvers sparsemax specs staging stat_summarizer stateless summary tensor_forest tensorboard tensorrt testing text
    tfprof timeseries tpu training util""".split()
)


# Attributes of tf.contrib that are no parts, but modules below them.
ATTRIBUTES = {
    "eager": "eager.python.tfe",
    "optimizer_v2": "optimizer_v2.optimizer_v2_symbols",
    "receptive_field": "receptive_field.receptive_field_api",
    "recurrent": "recurrent.python.recurrent_api",
    "remote_fused_graph": "remote_fused_graph.pylib",
    "specs": "specs.python",
    "summary": "summary.summary",
}


def _in(names: str, module: str = "") -> dict[str, str]:
    return {name: f"{module}{name}" for name in names.split()}


# Part of tf.contrib -> name -> path below tf.estimator. Releases before 1.15 had the hooks in tf.contrib.estimator.
MOVED_TO_ESTIMATOR: dict[str, dict[str, str]] = {
    "estimator": {
        "add_metrics": "add_metrics",
        "export_all_saved_models": "Estimator.experimental_export_all_saved_models",
        **_in("InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn call_logit_fn", "experimental."),
        **_in("dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook", "experimental."),
        **_in("make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook", "experimental."),
        **_in("stop_if_no_decrease_hook stop_if_no_increase_hook", "experimental."),
    },
    "tpu": _in("InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec", "tpu."),
}
# Heads of tf.contrib.estimator -> private functions of the package tensorflow-estimator that make them.
ESTIMATOR_HEADS = {
    "binary_classification_head": "_binary_logistic_head_with_sigmoid_cross_entropy_loss",
    "multi_class_head": "_multi_class_head_with_softmax_cross_entropy_loss",
    "regression_head": "_regression_head",
}


class Ours(NamedTuple):
    """A part that needs no genuine files."""

    names: tuple[str, ...]  # those that it has, for tools that import nothing
    homes: tuple[str, ...]  # where they are ("module" or "module:attribute"), in the order in which they are looked up
    instead: str  # what to use instead of its other names


_ESTIMATOR = "staging_tf1.legacy.shim.estimator.contrib"
OURS = {
    "staging": Ours(("MapStagingArea", "StagingArea"), ("staging_tf1.legacy.contrib.staging",), "staging_tf1"),
    "distribute": Ours(
        tuple(
            """CrossDeviceOps HierarchicalCopyAllReduce InputContext InputReplicationMode MirroredStrategy NcclAllReduce
            OneDeviceStrategy ReduceOp ReductionToOneDevice ReplicaContext RunOptions Server Strategy StrategyExtended
            cluster_resolver experimental experimental_set_strategy get_loss_reduction get_replica_context get_strategy
            has_strategy in_cross_replica_context""".split()
        ),
        ("tensorflow.compat.v1:distribute",),
        "tf.distribute",
    ),
    "tpu": Ours(
        (
            *MOVED_TO_ESTIMATOR["tpu"],
            *"""CrossShardOptimizer PaddingSpec XLAOptions batch_parallel bfloat16_scope core cross_replica_sum
            experimental initialize_system outside_compilation replicate rewrite shard shutdown_system""".split(),
        ),
        (f"{_ESTIMATOR}:tpu", "tensorflow.compat.v1:tpu"),
        "tf.compat.v1.tpu",
    ),
    "estimator": Ours(
        (
            *MOVED_TO_ESTIMATOR["estimator"],
            *ESTIMATOR_HEADS,
            "clip_gradients_by_norm",
            "logistic_regression_head",
            "poisson_regression_head",
        ),
        (f"{_ESTIMATOR}:estimator",),
        "tf.estimator",
    ),
}

# Names with an exact equivalent in tf.compat.v1. `migrate` writes it, so that the program needs no genuine files.
EQUIVALENTS: dict[str, dict[str, str]] = {
    "eager": {
        **_in("GradientTape TensorSpec Variable custom_gradient enable_eager_execution executing_eagerly function"),
        **_in("make_template"),
        **_in("Checkpoint", "train."),
        "defun": "function",
        "in_eager_mode": "executing_eagerly",
        "py_func": "py_function",
    },
    "framework": {
        **_in("TensorSpec argsort convert_to_tensor_or_sparse_tensor is_tensor nest py_func sort"),
        **_in("assert_global_step create_global_step get_global_step get_or_create_global_step", "train."),
        **_in("init_from_checkpoint list_variables load_checkpoint load_variable", "train."),
        **_in("assert_same_float_dtype assert_scalar", "debugging."),
    },
    "rnn": {
        **_in("BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell", "nn.rnn_cell."),
        **_in("LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper", "nn.rnn_cell."),
        **_in("static_bidirectional_rnn static_rnn static_state_saving_rnn", "nn."),
    },
}

_IO = "the package tensorflow-io"
_FORESTS = "the package tensorflow-decision-forests"
# Parts of `tf.contrib` whose ops are not restored, single names of others, and single ops -> what to use instead, ""
# if there is nothing.
LOST: dict[str, str] = {
    **dict.fromkeys("bigtable cloud hadoop ignite kafka kinesis".split(), _IO),
    **dict.fromkeys("boosted_trees tensor_forest".split(), _FORESTS),
    **dict.fromkeys("periodic_resample remote_fused_graph rpc tensorrt".split(), ""),
    **dict.fromkeys(
        (
            "factorization.WALSModel",
            "factorization.WALSMatrixFactorization",
            "factorization.WALSComputePartialLhsAndRhs",
        ),
        "the package implicit",
    ),
    "ffmpeg": f"tf.audio.decode_wav, or {_IO}",
    "fused_conv": "tf.nn.conv2d, tf.nn.bias_add and tf.nn.relu",
    **dict.fromkeys(
        ("image.connected_components", "image.ImageConnectedComponents"), "scipy.ndimage.label in tf.numpy_function"
    ),
    **dict.fromkeys(("image.single_image_random_dot_stereograms", "image.SingleImageRandomDotStereograms"), ""),
    "input_pipeline": "tf.data",
    "libsvm": "sklearn.datasets.load_svmlight_file",
    "memory_stats.BytesLimit": "tf.config.experimental.get_memory_info",
    "nearest_neighbor": "the package scann",
}

# The names of tf.estimator that are also in tf.train.
ESTIMATOR_HOOKS = tuple(
    """CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook
    NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer SessionRunArgs SessionRunContext
    SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook""".split()
)
