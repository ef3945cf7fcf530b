"""Two graphs in one program: a MonitoredSession, and a plain session with queue runners."""

import tensorflow as tf

with tf.Graph().as_default():
    tf.set_random_seed(1)
    numbers = tf.data.Dataset.range(24).batch(4).make_one_shot_iterator().get_next()
    x = tf.log1p(tf.to_float(numbers)) + tf.random_normal([4], seed=2)
    w = tf.get_variable("w", initializer=1.0)
    loss = tf.reduce_mean(tf.square(w * x - 1.0))
    train_op = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, tf.train.get_or_create_global_step())
    with tf.train.MonitoredTrainingSession() as sess:
        while not sess.should_stop():
            print("%.6f" % sess.run([loss, train_op])[0])

with tf.Graph().as_default():
    number = tf.train.range_input_producer(32, shuffle=True, seed=3, num_epochs=2).dequeue()
    batch = tf.train.batch([number], 8, num_threads=1)
    x = tf.log1p(tf.to_float(batch)) / 2.0
    x = tf.reduce_logsumexp(tf.tanh(x) + tf.random_uniform([8], seed=4)[:, None], 0)
    w = tf.get_variable("w", initializer=1.0)
    loss = tf.reduce_mean(tf.square(w * x - 1.0))
    train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            while not coord.should_stop():
                print("%.6f" % sess.run([loss, train_op])[0])
        except tf.errors.OutOfRangeError:
            print("end")
        finally:
            coord.request_stop()
            coord.join(threads)
