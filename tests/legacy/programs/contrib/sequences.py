"""tf.contrib's parts on sequences: crf, seq2seq, legacy_seq2seq, rnn."""
from __future__ import print_function

import numpy as np
import tensorflow as tf
from helpers.five_steps import classes, main, numbers, part, parts
from tensorflow.contrib import crf, legacy_seq2seq, rnn, seq2seq
from tensorflow.contrib.seq2seq.python.ops import attention_wrapper

BATCH, STEPS, UNITS, WORDS = 3, 4, 5, 6
LENGTHS = np.array([4, 2, 3], np.int32)


def dense(inputs, units, name="dense"):
    return tf.layers.dense(inputs, units, name=name)


# crf


@part
def crf_log_likelihood():
    scores = dense(numbers(BATCH, STEPS, 7), WORDS)
    likelihood, _ = crf.crf_log_likelihood(scores, classes(WORDS, BATCH, STEPS), tf.constant(LENGTHS))
    return tf.reduce_mean(-likelihood)


@part
def crf_decode():
    tags, score = crf.crf_decode(numbers(BATCH, STEPS, WORDS), numbers(WORDS, WORDS, seed=1), tf.constant(LENGTHS))
    return [tags, score]


@part
def crf_scores():
    scores = dense(numbers(BATCH, STEPS, 7), WORDS)
    moves = tf.get_variable("moves", [WORDS, WORDS])
    bits = tf.one_hot(classes(WORDS, BATCH, STEPS), WORDS, on_value=True, off_value=False)
    unary = crf.crf_unary_score(classes(WORDS, BATCH, STEPS), tf.constant(LENGTHS), scores)
    multi = crf.crf_multitag_sequence_score(scores, bits, tf.constant(LENGTHS), moves)
    return 0.01 * (tf.reduce_mean(tf.square(unary)) + tf.reduce_mean(tf.square(multi)))


# seq2seq


def decoder_loss(cell, state, helper):
    decoder = seq2seq.BasicDecoder(cell, helper, state, output_layer=tf.layers.Dense(WORDS, name="words"))
    outputs, _, _ = seq2seq.dynamic_decode(decoder)
    return seq2seq.sequence_loss(outputs.rnn_output, classes(WORDS, BATCH, STEPS), tf.sequence_mask(LENGTHS, STEPS, tf.float32))


def training_helper():
    return seq2seq.TrainingHelper(numbers(BATCH, STEPS, 7), LENGTHS)


@part
def seq2seq_basic_decoder():
    cell = tf.nn.rnn_cell.LSTMCell(UNITS)
    return decoder_loss(cell, cell.zero_state(BATCH, tf.float32), training_helper())


ATTENTIONS = {
    "bahdanau_attention": lambda memory: seq2seq.BahdanauAttention(UNITS, memory, [5, 3, 4]),
    "bahdanau_attention_normed": lambda memory: seq2seq.BahdanauAttention(UNITS, memory, normalize=True),
    "luong_attention": lambda memory: seq2seq.LuongAttention(UNITS, memory, [5, 3, 4]),
    "luong_attention_scaled": lambda memory: seq2seq.LuongAttention(UNITS, memory, scale=True),
    "bahdanau_monotonic_attention": lambda memory: seq2seq.BahdanauMonotonicAttention(UNITS, memory, mode="recursive"),
    "luong_monotonic_attention": lambda memory: seq2seq.LuongMonotonicAttention(UNITS, memory, scale=True),
}


def attention(mechanism):
    cell = rnn.GRUCell(UNITS)
    cell = seq2seq.AttentionWrapper(cell, mechanism(numbers(BATCH, 5, 8, seed=2)), attention_layer_size=4)
    return decoder_loss(cell, cell.zero_state(BATCH, tf.float32), training_helper())


parts(ATTENTIONS, attention)


@part
def seq2seq_greedy_helper():
    cell = rnn.GRUCell(UNITS)
    helper = seq2seq.GreedyEmbeddingHelper(numbers(WORDS, 7, seed=3), tf.fill([BATCH], 1), 2)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(BATCH, tf.float32), tf.layers.Dense(WORDS))
    outputs, _, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    return [outputs.rnn_output, outputs.sample_id, lengths]


@part
def seq2seq_scheduled_output_helper():
    cell = rnn.GRUCell(UNITS)
    helper = seq2seq.ScheduledOutputTrainingHelper(numbers(BATCH, STEPS, WORDS), LENGTHS, 1.0, seed=4)
    return decoder_loss(cell, cell.zero_state(BATCH, tf.float32), helper)


@part
def seq2seq_custom_and_inference_helpers():
    cell = rnn.GRUCell(UNITS)
    helper = seq2seq.InferenceHelper(
        lambda outputs: outputs, [UNITS], tf.float32, numbers(BATCH, UNITS), lambda ids: tf.reduce_sum(ids, 1) > 9.0
    )
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(BATCH, tf.float32))
    return [seq2seq.dynamic_decode(decoder, maximum_iterations=4, output_time_major=True)[0].rnn_output]


def beam(cell, state):
    decoder = seq2seq.BeamSearchDecoder(
        cell, numbers(WORDS, 7, seed=3), tf.fill([BATCH], 1), 2, state, 3, tf.layers.Dense(WORDS), length_penalty_weight=0.6
    )
    outputs, states, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=5)
    return [outputs.predicted_ids, states.log_probs, lengths]


@part
def seq2seq_beam_search():
    cell = rnn.LSTMCell(UNITS)
    return beam(cell, cell.zero_state(3 * BATCH, tf.float32))


@part
def seq2seq_beam_search_with_attention():
    memory = seq2seq.tile_batch(numbers(BATCH, 5, 8, seed=2), 3)
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(UNITS), seq2seq.LuongAttention(UNITS, memory), alignment_history=False)
    return beam(cell, cell.zero_state(3 * BATCH, tf.float32))


@part
def seq2seq_gather_tree():
    steps = tf.constant([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]])
    parents = tf.constant([[[0, 0, 0]], [[0, 1, 1]], [[2, 1, 2]]])
    return [seq2seq.gather_tree(steps, parents, tf.constant([3]), 10)]


@part
def seq2seq_hardmax_and_cumprod():
    return [seq2seq.hardmax(numbers(3, 4)), attention_wrapper.safe_cumprod(tf.abs(numbers(3, 4)), axis=1)]


# legacy_seq2seq


def rows(seed=0):
    return tf.unstack(numbers(STEPS, BATCH, 7, seed=seed))


def word_rows():
    return tf.unstack(classes(WORDS, STEPS, BATCH))


LEGACY = {
    "legacy_basic_rnn": lambda: legacy_seq2seq.basic_rnn_seq2seq(rows(), rows(1), rnn.GRUCell(UNITS)),
    "legacy_tied_rnn": lambda: legacy_seq2seq.tied_rnn_seq2seq(rows(), rows(1), rnn.GRUCell(UNITS)),
    "legacy_embedding_rnn": lambda: legacy_seq2seq.embedding_rnn_seq2seq(
        word_rows(), word_rows(), rnn.GRUCell(UNITS), WORDS, WORDS, 4
    ),
    "legacy_embedding_tied_rnn": lambda: legacy_seq2seq.embedding_tied_rnn_seq2seq(
        word_rows(), word_rows(), rnn.GRUCell(UNITS), WORDS, 4
    ),
    "legacy_embedding_attention": lambda: legacy_seq2seq.embedding_attention_seq2seq(
        word_rows(), word_rows(), rnn.BasicLSTMCell(UNITS), WORDS, WORDS, 4, num_heads=2
    ),
    "legacy_embedding_attention_previous": lambda: legacy_seq2seq.embedding_attention_seq2seq(
        word_rows(), word_rows(), rnn.GRUCell(UNITS), WORDS, WORDS, 4, feed_previous=True
    ),
    "legacy_rnn_decoder": lambda: legacy_seq2seq.rnn_decoder(rows(), numbers(BATCH, UNITS), rnn.GRUCell(UNITS)),
}


def legacy(build):
    outputs, state = build()
    weights = [tf.ones([BATCH])] * STEPS
    words = [tf.layers.dense(output, WORDS, name="words", reuse=tf.AUTO_REUSE) for output in outputs]
    by_example = legacy_seq2seq.sequence_loss_by_example(words, word_rows(), weights)
    return legacy_seq2seq.sequence_loss(words, word_rows(), weights) + 0.1 * tf.reduce_mean(by_example)


parts(LEGACY, legacy)


@part
def legacy_model_with_buckets():
    def build(encoder, decoder):
        return legacy_seq2seq.embedding_rnn_seq2seq(encoder, decoder, rnn.GRUCell(UNITS), WORDS, WORDS, 4)

    weights = [tf.ones([BATCH])] * STEPS
    _, losses = legacy_seq2seq.model_with_buckets(word_rows(), word_rows(), word_rows(), weights, [(2, 2), (4, 4)], build)
    return tf.add_n(losses)


# rnn: each cell in dynamic_rnn

CELLS = {
    "attention_cell_wrapper": lambda: rnn.AttentionCellWrapper(rnn.BasicLSTMCell(UNITS, state_is_tuple=True), 2, state_is_tuple=True),
    "coupled_input_forget_gate_lstm": lambda: rnn.CoupledInputForgetGateLSTMCell(UNITS, use_peepholes=True),
    "g_lstm": lambda: rnn.GLSTMCell(6, number_of_groups=2),
    "gru_block_cell_v2": lambda: rnn.GRUBlockCellV2(UNITS),
    "highway_wrapper": lambda: rnn.HighwayWrapper(rnn.GRUCell(6)),
    "ind_rnn": lambda: rnn.IndRNNCell(UNITS),
    "indy_gru": lambda: rnn.IndyGRUCell(UNITS),
    "indy_lstm": lambda: rnn.IndyLSTMCell(UNITS),
    "input_projection": lambda: rnn.InputProjectionWrapper(rnn.GRUCell(UNITS), 4),
    "intersection_rnn": lambda: rnn.IntersectionRNNCell(6),
    "layer_norm_lstm": lambda: rnn.LayerNormBasicLSTMCell(UNITS),
    "lstm_block_cell": lambda: rnn.LSTMBlockCell(UNITS, use_peephole=True),
    "multi_rnn": lambda: rnn.MultiRNNCell([rnn.GRUCell(UNITS), rnn.BasicRNNCell(UNITS)]),
    "nas_cell": lambda: rnn.NASCell(UNITS, num_proj=3),
    "output_projection": lambda: rnn.OutputProjectionWrapper(rnn.GRUCell(UNITS), 4),
    "sru": lambda: rnn.SRUCell(6),
    "ugrnn": lambda: rnn.UGRNNCell(UNITS),
}


def unrolled(cell):
    outputs, _ = tf.nn.dynamic_rnn(cell(), numbers(BATCH, STEPS, 6), LENGTHS, dtype=tf.float32)
    return tf.reduce_mean(tf.square(outputs - 0.3))


parts(CELLS, unrolled)


@part
def embedding_wrapper():
    cell = rnn.EmbeddingWrapper(rnn.GRUCell(UNITS), WORDS, 4)
    outputs, _ = rnn.static_rnn(cell, [tf.reshape(row, [-1, 1]) for row in word_rows()], dtype=tf.float32)
    return tf.reduce_mean(tf.square(tf.stack(outputs) - 0.3))


@part
def phased_lstm():
    times = tf.reshape(tf.range(float(BATCH * STEPS)), [BATCH, STEPS, 1])
    cell = rnn.PhasedLSTMCell(UNITS, trainable_ratio_on=True)
    outputs, _ = tf.nn.dynamic_rnn(cell, (times, numbers(BATCH, STEPS, 6)), dtype=tf.float32)
    return tf.reduce_mean(tf.square(outputs - 0.3))


@part
def conv_lstm():
    cell = rnn.Conv2DLSTMCell(input_shape=[6, 6, 2], output_channels=3, kernel_shape=[3, 3])
    outputs, _ = tf.nn.dynamic_rnn(cell, numbers(BATCH, STEPS, 6, 6, 2), dtype=tf.float32)
    return tf.reduce_mean(tf.square(outputs - 0.3))


@part
def grid_lstm():
    cell = rnn.GridLSTMCell(UNITS, use_peepholes=True, feature_size=2, frequency_skip=2, num_frequency_blocks=[2])
    outputs, _ = rnn.static_rnn(cell, tf.unstack(numbers(STEPS, BATCH, 4)), dtype=tf.float32)
    return tf.reduce_mean(tf.square(tf.stack(outputs) - 0.3))


FUSED = {
    "lstm_block_fused": lambda: rnn.LSTMBlockFusedCell(UNITS),
    "time_reversed_fused": lambda: rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(UNITS, use_peephole=True)),
    "fused_adaptor": lambda: rnn.FusedRNNCellAdaptor(rnn.GRUCell(UNITS), use_dynamic_rnn=True),
}


def fused(cell):
    outputs, _ = cell()(numbers(STEPS, BATCH, 6), dtype=tf.float32, sequence_length=tf.constant(LENGTHS))
    return tf.reduce_mean(tf.square(outputs - 0.3))


parts(FUSED, fused)


@part
def stack_bidirectional():
    cells = [[rnn.GRUCell(UNITS), rnn.GRUCell(4)] for _ in range(2)]
    outputs, _, _ = rnn.stack_bidirectional_dynamic_rnn(cells[0], cells[1], numbers(BATCH, STEPS, 6), dtype=tf.float32)
    return tf.reduce_mean(tf.square(outputs - 0.3))


@part
def bidirectional_static():
    outputs, _, _ = rnn.static_bidirectional_rnn(rnn.GRUCell(UNITS), rnn.GRUCell(4), rows(), dtype=tf.float32)
    return tf.reduce_mean(tf.square(tf.stack(outputs) - 0.3))


@part
def transpose_batch_time_and_decoder():
    from tensorflow.contrib.rnn.python.ops import rnn as contrib_rnn

    fw, bw, states = contrib_rnn.stack_bidirectional_rnn([rnn.GRUCell(4)], [rnn.GRUCell(4)], rows(), dtype=tf.float32)
    return tf.reduce_mean(tf.square(tf.stack(fw))) + tf.reduce_mean(states[0]) * 0.1


if __name__ == "__main__":
    main()
