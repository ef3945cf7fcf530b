"""`tf.contrib.training`: hyperparameters, batches by length or with states, and the placement of variables."""

from __future__ import annotations

from staging_tf1.legacy.contrib.buckets import bucket, bucket_by_sequence_length
from staging_tf1.legacy.contrib.hparams import HParams
from staging_tf1.legacy.contrib.placement import GreedyLoadBalancingStrategy, byte_size_load_fn
from staging_tf1.legacy.contrib.state_saver import (
    NextQueuedSequenceBatch,
    SequenceQueueingStateSaver,
    batch_sequences_with_states,
)

__all__ = [
    "GreedyLoadBalancingStrategy",
    "HParams",
    "NextQueuedSequenceBatch",
    "SequenceQueueingStateSaver",
    "batch_sequences_with_states",
    "bucket",
    "bucket_by_sequence_length",
    "byte_size_load_fn",
]
