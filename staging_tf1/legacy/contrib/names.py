"""What the genuine files of `tf.contrib` find elsewhere, or not, in the installed TensorFlow."""

from __future__ import annotations

# Module of tf.contrib -> name -> current home. Set when the module has been executed.
REPLACED: dict[str, dict[str, str]] = {
    "tensorflow.contrib.util.loader": {"load_op_library": "staging_tf1.legacy.contrib.ops:library"},
}

# Module of tf.contrib -> functions that its decorators do not register: TensorFlow now has their like.
UNREGISTERED: dict[str, tuple[str, ...]] = {
    "tensorflow.contrib.image.python.ops.image_ops": ("_image_projective_transform_grad",),
}

# Module of tf.contrib -> expression -> expression in its place, for what numpy and TensorFlow no longer take.
_MAKE_OP = {"ops.Operation(": "ops.Operation.from_node_def("}
# SLSQP and TNC of newer releases of scipy take only arrays of float64.
_DOUBLES = {
    "    constraints = []\n": (
        "    double = lambda of: lambda x: np.asarray(of(x), 'float64')\n"
        "    initial_val = initial_val.astype('float64') if method in ('SLSQP', 'TNC') else initial_val\n"
        "    constraints = []\n"
    ),
    "'fun': func, 'jac': grad_func}": "'fun': double(func), 'jac': double(grad_func)}",
    "return loss, gradient.astype('float64')": "return loss.astype('float64'), gradient.astype('float64')",
}
# Keras 2 passes training= to a layer whose call() takes any keyword.
_NO_TRAINING = {"init_kwargs = kwargs": "init_kwargs = {name: kwargs[name] for name in kwargs if name != 'training'}"}
REWRITTEN: dict[str, dict[str, str]] = {
    "tensorflow.contrib.copy_graph.python.util.copy_elements": _MAKE_OP,
    "tensorflow.contrib.framework.python.ops.variables": {"ckpt_value[slice_dims]": "ckpt_value[tuple(slice_dims)]"},
    "tensorflow.contrib.graph_editor.transform": _MAKE_OP,
    "tensorflow.contrib.opt.python.training.external_optimizer": _DOUBLES,
    "tensorflow.contrib.seq2seq.python.ops.beam_search_decoder": _NO_TRAINING,
    "tensorflow.contrib.seq2seq.python.ops.decoder": _NO_TRAINING,
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
