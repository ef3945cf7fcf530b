"""`tf.contrib.training`: hyperparameters, batches by length, and the placement of variables on parameter servers."""

from __future__ import annotations

from staging_tf1.legacy.contrib.buckets import bucket, bucket_by_sequence_length
from staging_tf1.legacy.contrib.hparams import HParams
from staging_tf1.legacy.contrib.placement import GreedyLoadBalancingStrategy, byte_size_load_fn

__all__ = ["GreedyLoadBalancingStrategy", "HParams", "bucket", "bucket_by_sequence_length", "byte_size_load_fn"]
