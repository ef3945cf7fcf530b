"""Selects Keras 2, which `tf.layers`, `tf.nn.rnn_cell` and `tf.keras` of TensorFlow 1 programs need.

TensorFlow 2.16 and later come with Keras 3, and read the choice when they are imported. So the program imports this
module first. It sets the environment variable ``TF_USE_LEGACY_KERAS`` unless it is set.
"""

from __future__ import annotations

from staging_tf1.legacy.shim.keras_two import require

require()
