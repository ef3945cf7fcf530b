"""Truncated back-propagation through time: an LSTM over segments of long sequences, with saved states."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

UNROLL, UNITS = 3, 2
LENGTHS = [7, 3, 1, 8, 5, 2]


def examples(lengths):
    number = tf.train.input_producer(tf.range(len(lengths)), num_epochs=1, shuffle=False).dequeue()
    return tf.as_string(number), tf.gather(lengths, number), number


def lstm_batch(allow_small_batch):
    key, length, number = examples(LENGTHS)
    steps = tf.cast(tf.range(length), tf.float32)
    wave = tf.stack([tf.sin(steps), tf.cos(steps)], 1)
    return tf.contrib.training.batch_sequences_with_states(
        input_key=key,
        input_sequences={"wave": wave, "next": tf.sin(steps + 1.0), "word": tf.as_string(tf.range(length))},
        input_context={"number": number, "label": tf.stack([key, "label"])},
        input_length=None,
        initial_states={"c": tf.zeros([UNITS]), "h": np.full(UNITS, 0.5, np.float32)},
        num_unroll=UNROLL,
        batch_size=2,
        num_threads=1,
        capacity=10,
        allow_small_batch=allow_small_batch,
    )


def lstm_loss(batch):
    cell = tf.nn.rnn_cell.LSTMCell(UNITS, initializer=tf.constant_initializer(0.3))
    inputs = tf.unstack(batch.sequences["wave"], axis=1)
    outputs, _ = tf.nn.static_state_saving_rnn(
        cell, inputs, state_saver=batch, state_name=("c", "h"), sequence_length=batch.length
    )
    weights = tf.get_variable("weights", [UNITS], initializer=tf.constant_initializer(0.1))
    predicted = tf.stack([tf.reduce_sum(output * weights, 1) for output in outputs], 1)
    mask = tf.sequence_mask(batch.length, UNROLL, tf.float32)
    return tf.reduce_sum(mask * tf.square(predicted - batch.sequences["next"])) / tf.reduce_sum(mask)


def sums_batch():
    key, length, _ = examples([4, 2, 6])
    return tf.contrib.training.batch_sequences_with_states(
        key,
        {"n": tf.range(length)},
        {},
        length - 1,
        {"sum": tf.constant(100)},
        num_unroll=2,
        batch_size=1,
        num_threads=1,
        pad=False,
        make_keys_unique=True,
        make_keys_unique_seed=5,
    )


def run_all(fetches, show, before=()):
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        # Without a coordinator: TensorFlow 1.15.5 can hang when it stops one after the end of the input.
        # All examples are inserted first: a batch that is waiting when the input ends does not get smaller.
        for thread in tf.train.start_queue_runners(sess):
            thread.join()
        for op in before:
            sess.run(op)
        try:
            while True:
                show(sess.run(fetches))
        except tf.errors.OutOfRangeError:
            print("end")


def show_lstm(got):
    loss, seen = got["loss"], got["seen"]
    print([each.decode() for each in seen["key"]], [each.decode() for each in seen["next_key"]], end=" ")
    print(seen["size"], seen["length"].tolist(), seen["total"].tolist(), (seen["index"] - np.iinfo(np.int64).min).tolist(), end=" ")
    print(seen["sequence"].tolist(), seen["count"].tolist(), seen["number"].tolist(), seen["label"].tolist())
    print(seen["word"].tolist(), "%.6f" % loss, np.round(seen["h"], 5).tolist())


for small in (True, False):
    with tf.Graph().as_default():
        batch = lstm_batch(small)
        print(batch.sequences["wave"].shape.as_list(), batch.state("c").shape.as_list(), batch.key.shape.as_list())
        loss = lstm_loss(batch)
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        seen = dict(
            key=batch.key, next_key=batch.next_key, size=batch.batch_size, length=batch.length,
            total=batch.total_length, index=batch.insertion_index, sequence=batch.sequence,
            count=batch.sequence_count, h=batch.state("h"), word=batch.sequences["word"], **batch.context
        )
        run_all({"loss": loss, "seen": seen, "train": train}, show_lstm)

with tf.Graph().as_default():
    batch = sums_batch()
    total = batch.state("sum") + tf.reduce_sum(batch.sequences["n"], 1)
    save = batch.save_state("sum", total)
    fetches = [batch.key, batch.length, batch.total_length, batch.sequences["n"], total, save]
    run_all(fetches, lambda got: print(*[each.tolist() for each in got[:-1]]))

with tf.Graph().as_default():
    key, length, _ = examples(LENGTHS[:3])
    saver = tf.contrib.training.SequenceQueueingStateSaver(
        2, 1, length, key, {"n": tf.range(length)}, {}, {"steps": [0]}, allow_small_batch=True
    )
    batch = saver.next_batch
    save = batch.save_state("steps", batch.state("steps") + 1)
    print(isinstance(batch, tf.contrib.training.NextQueuedSequenceBatch), saver.batch_size, saver.num_unroll)
    fetches = [batch.key, batch.sequences["n"], batch.state("steps"), save]
    before = [saver.prefetch_op] * 3 + [saver.close()]
    run_all(fetches, lambda got: print(*[each.tolist() for each in got[:-1]]), before)
