"""`tf.contrib.layers`: initializers and regularizers."""

from __future__ import annotations

from staging_tf1.legacy.contrib.initializers import variance_scaling_initializer, xavier_initializer
from staging_tf1.legacy.contrib.regularizers import l1_regularizer, l2_regularizer

__all__ = ["l1_regularizer", "l2_regularizer", "variance_scaling_initializer", "xavier_initializer"]
