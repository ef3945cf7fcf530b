"""Text classification: sentences from TFRecord examples, embeddings and indicators of words, serving input of examples."""
from __future__ import absolute_import, division, print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show

GOOD, BAD, OTHER = ["great", "fine", "lovely"], ["awful", "dull", "poor"], ["film", "actor", "plot", "the", "a"]
WORDS = GOOD + BAD + OTHER


def write_reviews(path, count, seed):
    rng = np.random.RandomState(seed)
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(count):
            good = rng.randint(2)
            words = list(rng.choice(GOOD if good else BAD, 2)) + list(rng.choice(OTHER, rng.randint(1, 5)))
            features = {
                "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=[each.encode() for each in words])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[good])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def main(_):
    folder = tempfile.mkdtemp()
    train, test = os.path.join(folder, "train.tfrecord"), os.path.join(folder, "test.tfrecord")
    write_reviews(train, 128, seed=5)
    write_reviews(test, 64, seed=6)
    words = tf.feature_column.categorical_column_with_vocabulary_list("words", WORDS, num_oov_buckets=1)
    columns = [tf.feature_column.embedding_column(words, dimension=3, combiner="sqrtn")]
    label = tf.FixedLenFeature([1], tf.int64)
    spec = dict(tf.feature_column.make_parse_example_spec(columns), label=label)

    def input_fn(path, epochs):
        dataset = tf.data.TFRecordDataset(path).repeat(epochs).batch(16)
        dataset = dataset.map(lambda examples: tf.parse_example(examples, spec))
        return dataset.map(lambda features: (features, features.pop("label")))

    model = tf.estimator.DNNClassifier(
        hidden_units=[8],
        feature_columns=columns,
        optimizer=tf.train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.001),
        model_dir=os.path.join(folder, "dnn"),
    )
    model.train(lambda: input_fn(train, 5), hooks=[NumpyWeights()])
    show("network", model.evaluate(lambda: input_fn(test, 1)))

    linear = tf.estimator.LinearClassifier([words], model_dir=os.path.join(folder, "linear"))
    linear.train(lambda: input_fn(train, 3))
    show("linear", linear.evaluate(lambda: input_fn(test, 1)))

    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(
        tf.feature_column.make_parse_example_spec(columns)
    )
    exported = linear.export_saved_model(os.path.join(folder, "export"), receiver)
    with tf.Session(graph=tf.Graph()) as sess:
        loaded = tf.saved_model.loader.load(sess, ["serve"], exported.decode())
        signature = loaded.signature_def["classification"]
        for sentence in ("a lovely film", "the dull plot"):
            bytes_list = tf.train.BytesList(value=[each.encode() for each in sentence.split()])
            example = tf.train.Example(
                features=tf.train.Features(feature={"words": tf.train.Feature(bytes_list=bytes_list)})
            )
            fed = {signature.inputs["inputs"].name: [example.SerializeToString()]}
            print(sentence, "%.5f" % sess.run(signature.outputs["scores"].name, fed)[0, 1])


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
