"""The names that `tf.contrib` finds elsewhere: those of tf_slim 1.1.0 and of TensorFlow 2.21.

A test compares them with the installed packages. The check imports neither.
"""

from __future__ import annotations

import functools

_OF: dict[str, str] = {
    "nest": "assert_same_structure flatten is_nested map_structure pack_sequence_as",
    "cluster_resolver": """
        ClusterResolver GCEClusterResolver KubernetesClusterResolver KubernetesExecutableLocation
        SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver
        UnionResolver
    """,
    "data": """
        AUTOTUNE AutoShardPolicy AutotuneAlgorithm AutotuneOptions Counter CsvDataset DatasetInitializer
        DatasetStructure DistributeOptions ExternalStatePolicy INFINITE_CARDINALITY OptimizationOptions
        Optional OptionalStructure RaggedTensorStructure RandomDataset Reducer SHARD_HINT ServiceOptions
        SparseTensorStructure SqlDataset Structure TFRecordWriter TensorArrayStructure TensorStructure
        ThreadingOptions UNKNOWN_CARDINALITY assert_cardinality bucket_by_sequence_length cardinality
        choose_from_datasets copy_to_device dense_to_ragged_batch dense_to_sparse_batch distributed_save
        enable_debug_mode enumerate_dataset from_list from_variant get_model_proto get_next_as_optional
        get_single_element get_structure group_by_reducer group_by_window ignore_errors
        index_table_from_dataset make_batched_features_dataset make_csv_dataset
        make_saveable_from_iterator map_and_batch map_and_batch_with_legacy_function pad_to_cardinality
        parallel_interleave parse_example_dataset prefetch_to_device rejection_resample
        sample_from_datasets scan service shuffle_and_repeat snapshot table_from_dataset take_while
        to_variant unbatch unique
    """,
    "distribute": """
        CrossDeviceOps HierarchicalCopyAllReduce InputContext InputReplicationMode MirroredStrategy
        NcclAllReduce OneDeviceStrategy ReduceOp ReductionToOneDevice ReplicaContext RunOptions Server
        Strategy StrategyExtended cluster_resolver experimental experimental_set_strategy
        get_loss_reduction get_replica_context get_strategy has_strategy in_cross_replica_context
    """,
    "losses": """
        Reduction absolute_difference add_loss cluster_loss compute_weighted_loss contrastive_loss
        cosine_distance get_losses get_regularization_loss get_regularization_losses get_total_loss
        hinge_loss huber_loss lifted_struct_loss log_loss loss_ops mean_pairwise_squared_error
        mean_squared_error metric_learning npairs_loss npairs_loss_multilabel sigmoid_cross_entropy
        softmax_cross_entropy sparse_softmax_cross_entropy triplet_semihard_loss
    """,
    "metrics": """
        accuracy aggregate_metric_map aggregate_metrics auc auc_using_histogram
        auc_with_confidence_intervals average_precision_at_k classification cohen_kappa count f1_score
        false_negatives false_negatives_at_thresholds false_positives false_positives_at_thresholds
        histogram_ops mean mean_absolute_error mean_cosine_distance mean_iou mean_per_class_accuracy
        mean_relative_error mean_squared_error mean_tensor metric_ops percentage_below precision
        precision_at_k precision_at_recall precision_at_thresholds precision_at_top_k
        precision_recall_at_equal_thresholds recall recall_at_k recall_at_precision recall_at_thresholds
        recall_at_top_k root_mean_squared_error sensitivity_at_specificity sparse_average_precision_at_k
        sparse_precision_at_k sparse_recall_at_top_k specificity_at_sensitivity streaming_accuracy
        streaming_auc streaming_concat streaming_covariance streaming_curve_points streaming_dynamic_auc
        streaming_false_negative_rate streaming_false_negative_rate_at_thresholds
        streaming_false_negatives streaming_false_negatives_at_thresholds streaming_false_positive_rate
        streaming_false_positive_rate_at_thresholds streaming_false_positives
        streaming_false_positives_at_thresholds streaming_mean streaming_mean_absolute_error
        streaming_mean_cosine_distance streaming_mean_iou streaming_mean_relative_error
        streaming_mean_squared_error streaming_mean_tensor streaming_pearson_correlation
        streaming_percentage_less streaming_precision streaming_precision_at_thresholds streaming_recall
        streaming_recall_at_k streaming_recall_at_thresholds streaming_root_mean_squared_error
        streaming_sensitivity_at_specificity streaming_sparse_average_precision_at_k
        streaming_sparse_average_precision_at_top_k streaming_sparse_precision_at_k
        streaming_sparse_precision_at_top_k streaming_sparse_recall_at_k
        streaming_specificity_at_sensitivity streaming_true_negatives
        streaming_true_negatives_at_thresholds streaming_true_positives
        streaming_true_positives_at_thresholds true_negatives true_negatives_at_thresholds
        true_positives true_positives_at_thresholds
    """,
    "rnn": """
        BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple
        MultiRNNCell RNNCell ResidualWrapper all_candidate_sampler approx_max_k approx_min_k
        atrous_conv2d atrous_conv2d_transpose avg_pool avg_pool1d avg_pool2d avg_pool3d avg_pool_v2
        batch_norm_with_global_normalization batch_normalization bias_add bidirectional_dynamic_rnn
        collapse_repeated compute_accidental_hits compute_average_loss conv1d conv1d_transpose conv2d
        conv2d_backprop_filter conv2d_backprop_input conv2d_transpose conv3d conv3d_backprop_filter
        conv3d_backprop_filter_v2 conv3d_transpose conv_transpose convolution crelu
        ctc_beam_search_decoder ctc_beam_search_decoder_v2 ctc_greedy_decoder ctc_loss ctc_loss_v2
        ctc_unique_labels depth_to_space depthwise_conv2d depthwise_conv2d_backprop_filter
        depthwise_conv2d_backprop_input depthwise_conv2d_native depthwise_conv2d_native_backprop_filter
        depthwise_conv2d_native_backprop_input dilation2d dropout dynamic_rnn elu embedding_lookup
        embedding_lookup_sparse erosion2d experimental fixed_unigram_candidate_sampler
        fractional_avg_pool fractional_max_pool fused_batch_norm in_top_k l2_loss l2_normalize
        leaky_relu learned_unigram_candidate_sampler local_response_normalization log_poisson_loss
        log_softmax log_uniform_candidate_sampler lrn max_pool max_pool1d max_pool2d max_pool3d
        max_pool_v2 max_pool_with_argmax moments nce_loss normalize_moments pool quantized_avg_pool
        quantized_conv2d quantized_max_pool quantized_relu_x raw_rnn relu relu6 relu_layer rnn_cell
        safe_embedding_lookup_sparse sampled_softmax_loss scale_regularization_loss selu
        separable_conv2d sigmoid sigmoid_cross_entropy_with_logits silu softmax
        softmax_cross_entropy_with_logits softmax_cross_entropy_with_logits_v2 softplus softsign
        space_to_batch space_to_depth sparse_softmax_cross_entropy_with_logits static_bidirectional_rnn
        static_rnn static_state_saving_rnn sufficient_statistics swish tanh top_k
        uniform_candidate_sampler weighted_cross_entropy_with_logits weighted_moments
        with_space_to_batch xw_plus_b zero_fraction
    """,
    "saved_model": """
        ASSETS_DIRECTORY ASSETS_KEY Asset Builder CLASSIFY_INPUTS CLASSIFY_METHOD_NAME
        CLASSIFY_OUTPUT_CLASSES CLASSIFY_OUTPUT_SCORES DEBUG_DIRECTORY DEBUG_INFO_FILENAME_PB
        DEFAULT_SERVING_SIGNATURE_DEF_KEY GPU LEGACY_INIT_OP_KEY MAIN_OP_KEY PREDICT_INPUTS
        PREDICT_METHOD_NAME PREDICT_OUTPUTS REGRESS_INPUTS REGRESS_METHOD_NAME REGRESS_OUTPUTS
        SAVED_MODEL_FILENAME_PB SAVED_MODEL_FILENAME_PBTXT SAVED_MODEL_SCHEMA_VERSION SERVING
        SaveOptions TPU TRAINING VARIABLES_DIRECTORY VARIABLES_FILENAME build_signature_def
        build_tensor_info builder classification_signature_def constants contains_saved_model
        experimental get_tensor_from_tensor_info is_valid_signature load load_v2 loader main_op
        main_op_with_restore maybe_saved_model_directory predict_signature_def regression_signature_def
        save signature_constants signature_def_utils simple_save tag_constants utils
    """,
    "signal": """
        dct fft fft2d fft3d fftnd fftshift frame hamming_window hann_window idct ifft ifft2d ifft3d
        ifftnd ifftshift inverse_mdct inverse_stft inverse_stft_window_fn irfft irfft2d irfft3d irfftnd
        kaiser_bessel_derived_window kaiser_window linear_to_mel_weight_matrix mdct
        mfccs_from_log_mel_spectrograms overlap_and_add rfft rfft2d rfft3d rfftnd stft vorbis_window
    """,
    "slim": """
        GDN OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES RevBlock VariableDeviceChooser adaptive_clipping_fn
        add_arg_scope add_model_variable apply_regularization arg_scope arg_scope_func_key arg_scope_lib
        arg_scoped_arguments assert_global_step assert_or_get_global_step assign_from_checkpoint
        assign_from_checkpoint_fn assign_from_values assign_from_values_fn avg_pool2d avg_pool3d
        batch_norm bias_add bucketization_op bucketize conv1d conv2d conv2d_in_plane conv2d_transpose
        conv3d conv3d_transpose convolution convolution1d convolution2d convolution2d_in_plane
        convolution2d_transpose convolution3d convolution3d_transpose create_global_step
        current_arg_scope data data_decoder data_provider dataset dataset_data_provider dense_to_sparse
        dropout elu evaluation filter_variables flatten fully_connected gdn get_global_step
        get_local_variables get_model_variables get_or_create_global_step get_trainable_variables
        get_unique_variable get_variable_full_name get_variables get_variables_by_name
        get_variables_by_suffix get_variables_to_restore global_variable group_norm has_arg_scope
        images_to_sequence initializers instance_norm l1_l2_regularizer l1_regularizer l2_regularizer
        layer_norm layers learning legacy_fully_connected legacy_linear legacy_relu linear
        local_variable losses max_pool2d max_pool3d maxout metrics model_analyzer model_variable
        normalization one_hot_encoding ops optimize_loss optimizers parallel_reader pool prefetch_queue
        queues recompute_grad regularizers relu relu6 repeat rev_block rev_block_lib scale_gradient
        separable_conv2d separable_convolution2d sequence_to_images softmax spatial_softmax stack
        sum_regularizer summaries summarize_activation summarize_activations summarize_biases
        summarize_collection summarize_tensor summarize_tensors summarize_variables summarize_weights
        tfexample_decoder train_eval training unit_norm utils variable variance_scaling_initializer
        xavier_initializer xavier_initializer_conv2d
    """,
    "tfprof": """
        AdviceProto GraphNodeProto MultiGraphNodeProto OpLogProto ProfileOptionBuilder Profiler advise
        profile write_op_log
    """,
    "tpu": """
        CrossShardOptimizer InputPipelineConfig PaddingSpec RunConfig TPUConfig TPUEstimator TPUEstimatorSpec
        XLAOptions batch_parallel bfloat16_scope core cross_replica_sum experimental initialize_system
        outside_compilation replicate rewrite shard shutdown_system
    """,
    "estimator": """
        InMemoryEvaluatorHook add_metrics binary_classification_head build_raw_supervised_input_receiver_fn
        call_logit_fn clip_gradients_by_norm dnn_logit_fn_builder export_all_saved_models
        linear_logit_fn_builder logistic_regression_head make_early_stopping_hook
        make_stop_at_checkpoint_step_hook multi_class_head poisson_regression_head regression_head
        stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook
    """,
}
# Modules that an import statement finds, and an attribute does not.
_ONLY_IMPORTED = {"slim": ("nets",), "layers": ("sparse_ops",)}
# Parts that find all names of tf_slim, besides their own.
_LIKE_SLIM = ("framework", "layers")


@functools.cache
def of(part: str) -> frozenset[str]:
    """Return the names below ``tf.contrib.PART`` that have a home, or those of `tf.nest`."""
    found = set(_OF.get(part, "").split())
    if part in _LIKE_SLIM:
        found.update(_OF["slim"].split())
    return frozenset(found)


def only_imported(part: str) -> tuple[str, ...]:
    """Return the modules of a part that have to be imported by their own name."""
    return _ONLY_IMPORTED.get(part, ())
