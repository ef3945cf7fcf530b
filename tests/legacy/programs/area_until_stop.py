"""Reader ops, an area and a loop until the coordinator stops, with the usual try statement."""
from __future__ import print_function

import tensorflow as tf


def sums(count):
    number = tf.train.input_producer(tf.range(count), num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.batch([tf.cast(number, tf.float32)], batch_size=4)
    stage = tf.contrib.staging.StagingArea(dtypes=[tf.float32], shapes=[[4]], capacity=2)
    stage_op = stage.put([batch])
    (staged,) = stage.get()
    total = tf.reduce_sum(staged)
    init_op = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
    sess = tf.Session()
    sess.run(init_op)
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    sess.run(stage_op)
    step = 0
    try:
        while not coord.should_stop() and step < 4:
            value, _ = sess.run([total, stage_op])
            print("step %d total %.1f" % (step, value))
            step += 1
    except tf.errors.OutOfRangeError:
        print("done")
    finally:
        coord.request_stop()
    coord.join(threads)
    sess.run(stage.clear())
    sess.close()


sums(20)
