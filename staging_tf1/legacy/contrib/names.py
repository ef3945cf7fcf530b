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
