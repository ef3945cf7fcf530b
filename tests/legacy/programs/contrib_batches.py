"""Batches by buckets of tf.contrib.training, of different sizes, without the rest."""
import tensorflow as tf

training = tf.contrib.training
number = tf.train.input_producer(tf.range(10), num_epochs=1, shuffle=False).dequeue()
which, batch = training.bucket({"n": number}, number % 2, [2, 3], 2, num_threads=1)
print(batch["n"].shape)
found = {0: [], 1: []}
with tf.Session() as sess:
    sess.run(tf.local_variables_initializer())
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    try:
        while True:
            bucket, numbers = sess.run([which, batch["n"]])
            found[int(bucket)].append(numbers.tolist())
    except tf.errors.OutOfRangeError:
        coord.request_stop()
    coord.join(threads)
print(found)
