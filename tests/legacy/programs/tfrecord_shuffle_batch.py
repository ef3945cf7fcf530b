"""TFRecord files, string_input_producer, tf.train.shuffle_batch, and an area behind the batch queue."""
from __future__ import print_function

import os
import tempfile

import tensorflow as tf

RECORDS = 40
BATCH = 5

path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
with tf.python_io.TFRecordWriter(path) as writer:
    for i in range(RECORDS):
        feature = {
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
            "value": tf.train.Feature(float_list=tf.train.FloatList(value=[i * 0.5])),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())

filenames = tf.train.string_input_producer([path], num_epochs=1, shuffle=False)
_, serialized = tf.TFRecordReader().read(filenames)
features = tf.parse_single_example(
    serialized, {"id": tf.FixedLenFeature([], tf.int64), "value": tf.FixedLenFeature([], tf.float32)}
)
ids, values = tf.train.shuffle_batch(
    [features["id"], features["value"]], BATCH, capacity=RECORDS, min_after_dequeue=10, num_threads=1, seed=5
)

area = tf.contrib.staging.StagingArea([tf.int64, tf.float32], [[BATCH], [BATCH]], capacity=1)
put = area.put([ids, values])
staged_ids, staged_values = area.get()
total = tf.reduce_sum(staged_values)

with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    seen = []
    value_sum = 0.0
    try:
        sess.run(put)
        while not coord.should_stop():
            got, subtotal = sess.run([staged_ids, total])
            seen.extend(got.tolist())
            value_sum += float(subtotal)
            sess.run(put)
    except tf.errors.OutOfRangeError:
        print("done, left in the area:", sess.run(area.size()))
    finally:
        coord.request_stop()
    coord.join(threads)
print("records", len(seen), "once each", sorted(seen) == list(range(RECORDS)), "sum %.1f" % value_sum)
