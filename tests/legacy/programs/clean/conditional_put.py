"""The last step does not put, and a test feeds the staged tensor: nothing stays in the area."""
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

STEPS = 10
x = tf.random_normal([8])
area = staging.StagingArea.from_tensors([x], capacity=1)
put, (staged,) = area.put([x]), area.get()
loss = tf.reduce_sum(staged)

with tf.Session() as sess:
    sess.run(put)
    for step in range(STEPS):
        also = [put] if step < STEPS - 1 else []
        value, *_ = sess.run([loss, *also])
    print(value, sess.run(loss, {staged: [0.0] * 8}))
