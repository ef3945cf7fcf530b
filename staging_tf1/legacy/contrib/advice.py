"""What to use instead of single names of `tf.contrib` that neither this package nor tf_slim has."""

from __future__ import annotations

_COLUMNS = "tf.feature_column"
_RESAMPLE = "tf.data.Dataset.rejection_resample"
_NO_BLOCK = "tf.nn.rnn_cell.GRUCell"
_KEPT_TPU = "tf.compat.v1.tpu"

# Part -> name of TensorFlow 1.15.5 -> replacement, "" if there is none.
ADVICE: dict[str, dict[str, str]] = {
    "data": {
        "CheckpointInputPipelineHook": "staging_tf1.staged(), which saves its position",
        "LMDBDataset": "the package tensorflow-io",
        "read_batch_features": "tf.data.experimental.make_batched_features_dataset",
    },
    "framework": {
        "RecordInput": "tf.data.TFRecordDataset",
        "fuse_op": "",
        "get_graph_from_inputs": "tensor.graph",
        "get_name_scope": "tf.get_default_graph().get_name_scope()",
        "get_placeholders": "graph.get_operations(), those of type Placeholder",
        "load_and_remap_matrix_initializer": "tf.train.init_from_checkpoint",
        "load_embedding_initializer": "tf.train.init_from_checkpoint",
        "load_linear_multiclass_bias_initializer": "tf.train.init_from_checkpoint",
        "load_variable_slot_initializer": "tf.train.init_from_checkpoint",
        "reduce_sum_n": "tf.add_n",
        "remove_squeezable_dimensions": "tf.squeeze",
        "smart_case": "tf.case",
        "smart_cond": "tf.cond",
        "smart_constant_value": "tf.get_static_value",
        "with_same_shape": "tf.ensure_shape",
        "with_shape": "tf.ensure_shape",
    },
    "layers": {
        "bow_encoder": "tf.nn.embedding_lookup_sparse",
        "embed_sequence": "tf.nn.embedding_lookup",
        "embedding_lookup_unique": "tf.nn.embedding_lookup",
        "safe_embedding_lookup_sparse": "tf.nn.safe_embedding_lookup_sparse",
        **dict.fromkeys(
            """SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY bucketized_column check_feature_columns
            create_feature_spec_for_parsing crossed_column embedding_column feature_column infer_real_valued_columns
            input_from_feature_columns joint_weighted_sum_from_feature_columns
            make_place_holder_tensors_for_base_features one_hot_column parse_feature_columns_from_examples
            parse_feature_columns_from_sequence_examples real_valued_column scattered_embedding_column
            sequence_input_from_feature_columns shared_embedding_columns sparse_column_with_hash_bucket
            sparse_column_with_integerized_feature sparse_column_with_keys sparse_column_with_vocabulary_file
            transform_features weighted_sparse_column weighted_sum_from_feature_columns""".split(),
            _COLUMNS,
        ),
        "multi_class_target": "",
        "regression_target": "",
    },
    "rnn": {
        "EmbeddingWrapper": "tf.nn.embedding_lookup",
        "GRUBlockCell": _NO_BLOCK,
        "GRUBlockCellV2": _NO_BLOCK,
        "InputProjectionWrapper": "tf.layers.dense",
        "LSTMBlockFusedCell": "tf.contrib.rnn.LSTMBlockCell in tf.nn.dynamic_rnn",
        "LSTMBlockWrapper": "tf.contrib.rnn.LSTMBlockCell in tf.nn.dynamic_rnn",
        "LayerRNNCell": "tf.nn.rnn_cell.RNNCell",
        "OutputProjectionWrapper": "tf.layers.dense",
        "stack_bidirectional_dynamic_rnn": "tf.nn.bidirectional_dynamic_rnn, layer by layer",
        "stack_bidirectional_rnn": "tf.nn.bidirectional_dynamic_rnn, layer by layer",
        "transpose_batch_time": "tf.transpose",
        **dict.fromkeys(
            """AttentionCellWrapper BidirectionalGridLSTMCell CompiledWrapper Conv1DLSTMCell Conv2DLSTMCell
            Conv3DLSTMCell ConvLSTMCell CoupledInputForgetGateLSTMCell FusedRNNCell FusedRNNCellAdaptor GLSTMCell
            GridLSTMCell HighwayWrapper IndRNNCell IndyGRUCell IndyLSTMCell IntersectionRNNCell LayerNormBasicLSTMCell
            NASCell PhasedLSTMCell SRUCell TimeFreqLSTMCell TimeReversedFusedRNN UGRNNCell
            best_effort_input_batch_size""".split(),
            "",
        ),
    },
    "tpu": {
        **dict.fromkeys(("RunConfig", "TPUConfig", "TPUEstimator", "TPUEstimatorSpec", "InputPipelineConfig"), ""),
        **dict.fromkeys(("keras_to_tpu_model", "TPUDistributionStrategy"), _KEPT_TPU),
    },
    "training": {
        "FeedingQueueRunner": "staging_tf1.CustomRunner",
        "RandomStrategy": "tf.contrib.training.GreedyLoadBalancingStrategy",
        "parse_values": "tf.contrib.training.HParams.parse",
        "rejection_sample": _RESAMPLE,
        "resample_at_rate": _RESAMPLE,
        "stratified_sample": _RESAMPLE,
        "weighted_resample": _RESAMPLE,
    },
}


def replacement_of(part: str, name: str) -> str | None:
    """Return the replacement of one name, "" if there is none, and None for a name that is not listed."""
    return ADVICE.get(part, {}).get(name)
