import tensorflow as tf

weights = tf.Variable(tf.random.normal([64, 8]))
dataset = tf.data.Dataset.from_tensor_slices(weights)
batch = dataset.batch(16).make_one_shot_iterator().get_next()
