"""The transformations of tf.contrib.data."""
import numpy as np
import tensorflow as tf

data = tf.contrib.data


def show(name, dataset, steps=20):
    element = dataset.make_one_shot_iterator().get_next()
    with tf.Session() as sess:
        try:
            for _ in range(steps):
                print(name, np.ravel(sess.run(element)))
        except tf.errors.OutOfRangeError:
            print(name, "end")
        except tf.errors.InvalidArgumentError:
            print(name, "invalid")


numbers = tf.data.Dataset.range(7)
lengths = tf.data.Dataset.range(1, 6).map(tf.range)
show("batch_and_drop_remainder", numbers.apply(data.batch_and_drop_remainder(3)))
show("padded", lengths.apply(data.padded_batch_and_drop_remainder(2, [None], np.int64(7))))
show("sliding", numbers.apply(data.sliding_window_batch(3, window_stride=2)))
show("sliding pairs", tf.data.Dataset.zip((numbers, numbers)).apply(data.sliding_window_batch(4, window_shift=2)))
show("shape", lengths.skip(1).apply(data.assert_element_shape(tf.TensorShape([2]))))
show("map_and_batch", numbers.apply(data.map_and_batch(lambda x: x * 2, 4)))
show("shuffle_and_repeat", numbers.take(1).apply(data.shuffle_and_repeat(5, 2)))
show("unbatch", numbers.batch(2).apply(data.unbatch()))
show("scan", numbers.apply(data.scan(np.int64(0), lambda state, x: (state + x, state))))
show("ignore_errors", numbers.map(lambda x: tf.check_numerics(1.0 / tf.cast(x, tf.float32), "")).apply(data.ignore_errors()))
show("enumerate", numbers.take(2).apply(data.enumerate_dataset(5)))
show("unique", numbers.map(lambda x: x % 3).apply(data.unique()))
show("interleave", numbers.apply(data.parallel_interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(2), 2)))
show("group", numbers.apply(data.group_by_window(lambda x: x % 2, lambda key, window: window.batch(3), 3)))
show("buckets", lengths.apply(data.bucket_by_sequence_length(tf.size, [3], [2, 2])))
show("choose", data.choose_from_datasets([numbers, numbers.map(lambda x: -x)], tf.data.Dataset.range(4).map(lambda x: x % 2)))
reducer = data.Reducer(lambda _: np.int64(0), lambda state, x: state + x, lambda state: state)
with tf.Session() as sess:
    print(sess.run(data.reduce_dataset(numbers, reducer)))
    print(sess.run(data.get_single_element(numbers.take(1))))
