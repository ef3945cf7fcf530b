"""`tf.contrib.training`: hyperparameters, and the placement of variables on parameter servers."""

from __future__ import annotations

from staging_tf1.legacy.contrib.hparams import HParams
from staging_tf1.legacy.contrib.placement import GreedyLoadBalancingStrategy, byte_size_load_fn

__all__ = ["GreedyLoadBalancingStrategy", "HParams", "byte_size_load_fn"]
