"""A new graph for every setting: the ops in that loop are built once per graph."""
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

for rate in (0.1, 0.01):
    with tf.Graph().as_default(), tf.Session() as sess:
        area = staging.StagingArea([tf.float32], capacity=1)
        put, (x,) = area.put([tf.random_normal([4])]), area.get()
        w = tf.get_variable("w", [4], initializer=tf.zeros_initializer())
        train = tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(tf.square(x - w)))
        sess.run(tf.global_variables_initializer())
        for step in range(10):
            sess.run(put)
            sess.run(train)
