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

# What to use instead of ops that are not restored: op, or part of tf.contrib -> advice.
INSTEAD: dict[str, str] = {
    "BytesLimit": "tf.config.experimental.get_memory_info",
    "ImageConnectedComponents": "scipy.ndimage.label in tf.numpy_function",
    "bigtable": "the package tensorflow-io",
    "boosted_trees": "the package tensorflow-decision-forests",
    "cloud": "the package tensorflow-io",
    "factorization": "the package implicit, or scikit-learn",
    "ffmpeg": "tf.audio.decode_wav, or the package tensorflow-io",
    "fused_conv": "tf.nn.conv2d, tf.nn.bias_add and tf.nn.relu",
    "hadoop": "the package tensorflow-io",
    "ignite": "the package tensorflow-io",
    "input_pipeline": "tf.data",
    "kafka": "the package tensorflow-io",
    "kinesis": "the package tensorflow-io",
    "libsvm": "sklearn.datasets.load_svmlight_file",
    "nearest_neighbor": "the package scann",
    "tensor_forest": "the package tensorflow-decision-forests",
}
