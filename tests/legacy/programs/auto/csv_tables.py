"""Lines of text, a table and an embedding, read by an iterator that each epoch initializes again."""

import tensorflow as tf

tf.set_random_seed(1)
lines = tf.data.Dataset.from_tensor_slices(["w%d,%d" % (i % 7, i % 3) for i in range(40)]).shuffle(40, seed=3)
iterator = lines.batch(8).make_initializable_iterator()
word, label = tf.decode_csv(iterator.get_next(), [[""], [0]])
numbers = tf.lookup.KeyValueTensorInitializer(["w%d" % i for i in range(5)], list(range(5)), tf.string, tf.int64)
table = tf.lookup.StaticVocabularyTable(numbers, num_oov_buckets=1)
vectors = tf.get_variable("vectors", [6, 3])
logits = tf.layers.dense(tf.nn.embedding_lookup(vectors, table.lookup(word)), 3)
loss = tf.losses.sparse_softmax_cross_entropy(label, logits)
train_op = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
    for epoch in range(3):
        sess.run(iterator.initializer)
        steps = 0
        while True:
            try:
                value, labels, _ = sess.run([loss, label, train_op])
            except tf.errors.OutOfRangeError:
                break
            steps += 1
        print(epoch, steps, "%.6f" % value, labels.tolist())
