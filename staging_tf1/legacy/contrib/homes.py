"""The current homes of the parts of `tf.contrib` and `tf.estimator`."""

from __future__ import annotations

# Every module of TensorFlow 1.15.5 below tf.contrib, and its replacement; "" if there is none.
REPLACEMENTS: dict[str, str] = {
    "autograph": "tf.autograph",
    "batching": "tf.nondifferentiable_batch_function",
    "bayesflow": "the package tensorflow_probability",
    "checkpoint": "tf.train.Checkpoint",
    "cloud": "the package tensorflow-io",
    "cluster_resolver": "tf.distribute.cluster_resolver",
    "compiler": "tf.xla",
    "constrained_optimization": "the package tensorflow-constrained-optimization",
    "copy_graph": "tf.graph_util and tf.train.export_meta_graph",
    "crf": "the package tensorflow-addons (tfa.text.crf), which is no longer maintained",
    "cudnn_rnn": "tf.keras.layers.LSTM of tf_keras",
    "data": "tf.data.experimental",
    "deprecated": "tf.summary",
    "distribute": "tf.distribute",
    "distributions": "the package tensorflow_probability",
    "eager": "tf.GradientTape, tf.function and tf.compat.v1.enable_eager_execution",
    "estimator": "tf.estimator",
    "factorization": "",
    "feature_column": "tf.feature_column",
    "ffmpeg": "the package tensorflow-io",
    "framework": "tf.train, tf.nest and the package tf_slim",
    "graph_editor": "tf.import_graph_def with input_map, which replaces most of its uses",
    "grid_rnn": "",
    "image": "tf.image and the package tensorflow-addons, which is no longer maintained",
    "input_pipeline": "tf.data",
    "integrate": "the package tensorflow_probability (tfp.math.ode)",
    "keras": "tf.keras",
    "kernel_methods": "",
    "labeled_tensor": "",
    "layers": "the package tf_slim (tf_slim.layers)",
    "learn": "tf.keras, and for data sets other than MNIST the package tensorflow_datasets",
    "legacy_seq2seq": "",
    "linear_optimizer": "tf.keras.experimental.LinearModel of tf_keras",
    "lookup": "tf.lookup",
    "losses": "the package tf_slim (tf_slim.losses) and tf.losses",
    "memory_stats": "tf.config.experimental.get_memory_info",
    "metrics": "the package tf_slim (tf_slim.metrics) and tf.metrics",
    "mixed_precision": "tf.train.experimental.enable_mixed_precision_graph_rewrite",
    "model_pruning": "the package tensorflow-model-optimization",
    "nn": "tf.nn",
    "opt": "the package tensorflow-addons, which is no longer maintained, and tf.train",
    "optimizer_v2": "tf.keras.optimizers of tf_keras",
    "periodic_resample": "",
    "predictor": "tf.saved_model.load",
    "proto": "tf.io.decode_proto and tf.io.encode_proto",
    "quantization": "tf.quantization",
    "quantize": "the package tensorflow-model-optimization",
    "receptive_field": "the package receptive_field",
    "recurrent": "",
    "reduce_slice_ops": "",
    "remote_fused_graph": "",
    "resampler": "the package tensorflow-addons, which is no longer maintained",
    "rnn": "tf.nn.rnn_cell and tf.nn",
    "rpc": "",
    "saved_model": "tf.saved_model",
    "seq2seq": "the package tensorflow-addons, which is no longer maintained",
    "signal": "tf.signal",
    "slim": "the package tf_slim",
    "solvers": "tf.linalg.experimental.conjugate_gradient",
    "sparsemax": "the package tensorflow-addons, which is no longer maintained",
    "specs": "",
    "staging": "staging_tf1",
    "stat_summarizer": "",
    "stateless": "tf.random.stateless_uniform and similar functions",
    "summary": "tf.compat.v2.summary",
    "tensor_forest": "the package tensorflow-decision-forests",
    "tensorboard": "the package tensorboard (tensorboard.plugins.projector)",
    "testing": "tf.test",
    "tfprof": "tf.profiler",
    "timeseries": "the package tensorflow_probability (tfp.sts)",
    "tpu": "tf.compat.v1.tpu",
    "training": "tf.train, tf.data.experimental and the package tf_slim (tf_slim.training)",
    "util": "",
}

# Modules that old code imports and hardly uses: a missing name raises only when it is used.
LENIENT = frozenset({"layers", "slim", "rnn"})

# Packages that continue a part, best first; used if they are installed.
PACKAGES: dict[str, tuple[str, ...]] = {
    "slim": ("tf_slim",),
    "layers": ("tf_slim.layers", "tf_slim"),
    "framework": ("tf_slim",),
    "losses": ("tf_slim.losses",),
    "metrics": ("tf_slim.metrics",),
    "training": ("tf_slim.training.training", "tf_slim.training.evaluation"),
}

# Names that have another home in tf.compat.v1, or in this package ("staging_tf1...:name").
ALIASES: dict[str, dict[str, str]] = {
    "staging": {
        "StagingArea": "staging_tf1:StagingArea",
        "MapStagingArea": "staging_tf1:MapStagingArea",
    },
    "layers": {
        "xavier_initializer": "staging_tf1.contrib.layers:xavier_initializer",
        "xavier_initializer_conv2d": "staging_tf1.contrib.layers:xavier_initializer",
        "variance_scaling_initializer": "staging_tf1.contrib.layers:variance_scaling_initializer",
        "l1_regularizer": "staging_tf1.contrib.layers:l1_regularizer",
        "l2_regularizer": "staging_tf1.contrib.layers:l2_regularizer",
    },
    "framework": {
        "nest": "nest",
        "TensorSpec": "TensorSpec",
        "argsort": "argsort",
        "sort": "sort",
        "is_tensor": "is_tensor",
        "py_func": "py_func",
        "create_global_step": "train.create_global_step",
        "get_global_step": "train.get_global_step",
        "get_or_create_global_step": "train.get_or_create_global_step",
        "assert_global_step": "train.assert_global_step",
        "assert_same_float_dtype": "debugging.assert_same_float_dtype",
        "assert_scalar": "debugging.assert_scalar",
        "convert_to_tensor_or_sparse_tensor": "convert_to_tensor_or_sparse_tensor",
        "init_from_checkpoint": "train.init_from_checkpoint",
        "list_variables": "train.list_variables",
        "load_checkpoint": "train.load_checkpoint",
        "load_variable": "train.load_variable",
        "zero_initializer": "zeros_initializer",
    },
    "data": {
        name: f"staging_tf1.contrib.data:{name}"
        for name in (
            "assert_element_shape",
            "batch_and_drop_remainder",
            "padded_batch_and_drop_remainder",
            "reduce_dataset",
            "sliding_window_batch",
            "sloppy_interleave",
        )
    },
    "metrics": {
        "confusion_matrix": "math.confusion_matrix",
        "set_difference": "sets.difference",
        "set_intersection": "sets.intersection",
        "set_size": "sets.size",
        "set_union": "sets.union",
    },
    "rnn": {"LSTMBlockCell": "staging_tf1.contrib.rnn:LSTMBlockCell"},
    "training": {
        "HParams": "staging_tf1.contrib.training:HParams",
        "NextQueuedSequenceBatch": "staging_tf1.contrib.training:NextQueuedSequenceBatch",
        "SequenceQueueingStateSaver": "staging_tf1.contrib.training:SequenceQueueingStateSaver",
        "StopAfterNEvalsHook": "estimator.experimental.StopAfterNEvalsHook",
        "batch_sequences_with_states": "staging_tf1.contrib.training:batch_sequences_with_states",
        "bucket": "staging_tf1.contrib.training:bucket",
        "bucket_by_sequence_length": "staging_tf1.contrib.training:bucket_by_sequence_length",
        "checkpoints_iterator": "train.checkpoints_iterator",
        "GreedyLoadBalancingStrategy": "staging_tf1.contrib.training:GreedyLoadBalancingStrategy",
        "byte_size_load_fn": "staging_tf1.contrib.training:byte_size_load_fn",
    },
    "eager": {
        "Checkpoint": "train.Checkpoint",
        "GradientTape": "GradientTape",
        "TensorSpec": "TensorSpec",
        "Variable": "Variable",
        "custom_gradient": "custom_gradient",
        "defun": "function",
        "function": "function",
        "enable_eager_execution": "enable_eager_execution",
        "executing_eagerly": "executing_eagerly",
        "in_eager_mode": "executing_eagerly",
        "make_template": "make_template",
        "py_func": "py_function",
    },
}

# Parts that this package looks up by a function `find(part, name)` of its own, which may return None.
LENT = {"estimator": "staging_tf1.legacy.estimator.contrib", "tpu": "staging_tf1.legacy.estimator.contrib"}

# Modules and functions that this package has, by their full old name. The packages above them have nothing else.
OURS: dict[str, str] = {
    "tensorflow.contrib.learn.datasets.load_dataset": "staging_tf1.contrib.mnist:load_dataset",
    "tensorflow.contrib.learn.datasets.mnist": "staging_tf1.contrib.mnist",
    "tensorflow.contrib.learn.python.learn.datasets.mnist": "staging_tf1.contrib.mnist",
    "tensorflow.examples.tutorials.mnist.input_data": "staging_tf1.contrib.mnist",
    "tensorflow.examples.tutorials.mnist.mnist": "staging_tf1.contrib.mnist_model",
}

# Whole modules, whose names are looked up one by one in a module of tf.compat.v1.
MODULES: dict[str, tuple[str, ...]] = {
    "data": ("data.experimental",),
    "rnn": ("nn.rnn_cell", "nn"),
    "losses": ("losses",),
    "metrics": ("metrics",),
    "cluster_resolver": ("distribute.cluster_resolver",),
    "distribute": ("distribute",),
    "saved_model": ("saved_model",),
    "tpu": ("tpu",),
    "tfprof": ("profiler",),
    "signal": ("signal",),
}

# The names of tf.estimator that are also in tf.train.
ESTIMATOR_HOOKS = (
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
)

# The parts that a program can import. Of all others, the import itself raises.
OFFERED = LENIENT | set(ALIASES) | set(MODULES) | set(PACKAGES) | set(LENT)
