"""Sentences in buckets by their length, through queues into an area, and tf.contrib.data's transformations."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

lengths = np.random.RandomState(0).randint(1, 12, 40)
queue = tf.train.input_producer(tf.constant(lengths, tf.int32), num_epochs=1, shuffle=False)
length = queue.dequeue()
words = tf.range(length)
found, batch = tf.contrib.training.bucket_by_sequence_length(
    length,
    {"words": words, "double": 2 * words},
    batch_size=4,
    bucket_boundaries=[4, 8],
    capacity=64,
    dynamic_pad=True,
    allow_smaller_final_batch=True,
    keep_input=length > 1,
)
area = tf.contrib.staging.StagingArea([tf.int32, tf.int32, tf.int32], [[None], [None, None], [None, None]])
put = area.put([found, batch["words"], batch["double"]])
got_lengths, got_words, got_double = area.get()

which, numbers = tf.contrib.training.bucket(
    [tf.train.input_producer(tf.range(11), num_epochs=1, shuffle=False).dequeue()],
    which_bucket=0, batch_size=[3], num_buckets=1,
)


def batches_of(transformation):
    dataset = tf.data.Dataset.range(10).apply(transformation)
    print(dataset.output_shapes.as_list())
    return dataset.make_one_shot_iterator().get_next()


several = [
    batches_of(transformation)
    for transformation in (
        tf.contrib.data.batch_and_drop_remainder(4),
        tf.contrib.data.map_and_batch(lambda x: 2 * x, 4, drop_remainder=True),
        tf.contrib.data.shuffle_and_repeat(1, 2),
        tf.contrib.data.sliding_window_batch(3, window_shift=2),
        tf.contrib.data.padded_batch_and_drop_remainder(3, []),
        tf.contrib.data.assert_element_shape(tf.TensorShape([])),
    )
]
total = tf.contrib.data.reduce_dataset(
    tf.data.Dataset.range(5), tf.contrib.data.Reducer(lambda key: np.int64(0), lambda a, b: a + b, lambda a: a)
)

with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    for batches in several:
        print([sess.run(batches).tolist() for _ in range(2)])
    print(sess.run(total))
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    seen, sums, widths = [], 0, set()
    try:
        sess.run(put)
        while True:
            some, words_, double = sess.run([got_lengths, got_words, got_double])
            seen.extend(some.tolist())
            sums += double.sum()
            assert words_.shape[1] == some.max() and double.sum() == 2 * words_.sum()
            widths.add(tuple(map(bool, (some.min() >= 4, some.min() >= 8, some.max() >= 4, some.max() >= 8))))
            sess.run(put)
    except tf.errors.OutOfRangeError:
        pass
    print(sorted(seen), int(sums), sorted(widths))
    print([sess.run([which, numbers])[1].tolist() for _ in range(3)])
    coord.request_stop()
    coord.join(threads)
