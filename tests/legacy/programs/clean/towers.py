"""One area per tower and one per variable, built in loops before the session, which is legitimate."""
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

TOWERS = ["/device:GPU:%d" % i for i in range(2)]


def build_tower(device, batch):
    with tf.device(device):
        area = staging.StagingArea([batch.dtype], [batch.shape], capacity=2)
        return area.put([batch]), area.get()[0], area


puts, losses, areas = [], [], []
for device in TOWERS:
    put, x, area = build_tower(device, tf.random_normal([8]))
    puts.append(put)
    losses.append(tf.reduce_sum(x))
    areas.append(area)
weights = [tf.get_variable("w%d" % i, [2], initializer=tf.ones_initializer()) for i in range(3)]
copies = []
for weight in weights:
    area = staging.StagingArea([tf.float32], [[2]])
    copies.append((area.put([weight]), area.get()[0], area.clear()))
total = tf.add_n(losses)
train = tf.group(total, *puts)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(2):
        sess.run(puts)
    for step in range(100):
        sess.run(train)
    sess.run([area.clear() for area in areas])
    sess.run([clear for _, _, clear in copies])
