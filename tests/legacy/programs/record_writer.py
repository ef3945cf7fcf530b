"""Writes images as the TFRecord converters of 2017 did, and reads them back through a queue and an area."""
from __future__ import print_function

import os
import tempfile

import numpy as np
import tensorflow as tf

COUNT = 12


def bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def decode(raw):
    return np.fromstring(raw, dtype=np.uint8).reshape(4, 3)


path = os.path.join(tempfile.mkdtemp(), "images.tfrecords")
writer = tf.python_io.TFRecordWriter(path)
images = np.array(range(COUNT * 12), copy=False).reshape(COUNT, 4, 3).astype(np.uint8)
for image in images:
    feature = {"image": bytes_feature(image.tostring()), "shape": bytes_feature(np.array(image.shape, np.int64).tostring())}  # bad: STG119
    writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
writer.close()

for record in list(tf.python_io.tf_record_iterator(path))[:2]:
    example = tf.train.Example.FromString(record)
    raw = example.features.feature["image"].bytes_list.value[0]
    image = np.fromstring(raw, np.uint8)
    image[0] = 9
    print(image.tolist(), np.fromstring(example.features.feature["shape"].bytes_list.value[0], np.int64).tolist())

queue = tf.train.string_input_producer([path], num_epochs=1, shuffle=False)
_, serialized = tf.TFRecordReader().read(queue)
parsed = tf.parse_single_example(serialized, {"image": tf.FixedLenFeature([], tf.string)})
decoded = tf.py_func(decode, [parsed["image"]], tf.uint8)
decoded.set_shape([4, 3])
batch = tf.train.batch([decoded], batch_size=3)
area = tf.contrib.staging.StagingArea([tf.uint8], [[3, 4, 3]])
put = area.put([batch])
(got,) = area.get()
total = tf.reduce_sum(tf.cast(got, tf.int32), [1, 2])

with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    sess.run(put)
    for step in range(3):
        print(step, [int(value) for value in sess.run([total, put])[0]])
    print("last", [int(value) for value in sess.run(total)])
    coord.request_stop()
    coord.join(threads)
