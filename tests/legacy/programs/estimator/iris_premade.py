"""The premade classifier on flowers: feature columns, input functions of datasets, train, evaluate, predict."""
from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show

FEATURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
SPECIES = ["setosa", "versicolor", "virginica"]


def flowers(count, seed):
    rng = np.random.RandomState(seed)
    species = rng.randint(0, 3, count)
    centers = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
    values = centers[species] + rng.normal(0, 0.3, (count, 4))
    return {name: values[:, i].astype(np.float32) for i, name in enumerate(FEATURES)}, species.astype(np.int64)


def train_input_fn(features, labels, batch_size):
    dataset = tf.data.Dataset.from_tensor_slices((dict(features), labels))
    return dataset.repeat().batch(batch_size)


def eval_input_fn(features, labels, batch_size):
    inputs = dict(features) if labels is None else (dict(features), labels)
    return tf.data.Dataset.from_tensor_slices(inputs).batch(batch_size)


def main(argv):
    train_x, train_y = flowers(120, seed=1)
    test_x, test_y = flowers(30, seed=2)
    classifier = tf.estimator.DNNClassifier(
        feature_columns=[tf.feature_column.numeric_column(key=key) for key in train_x.keys()],
        hidden_units=[10, 10],
        n_classes=3,
        label_vocabulary=None,
    )
    classifier.train(input_fn=lambda: train_input_fn(train_x, train_y, 20), steps=60, hooks=[NumpyWeights()])
    show("test", classifier.evaluate(input_fn=lambda: eval_input_fn(test_x, test_y, 20)))
    predictions = classifier.predict(input_fn=lambda: eval_input_fn(test_x, None, 20))
    for prediction, expected in list(zip(predictions, test_y))[:4]:
        chosen = prediction["class_ids"][0]
        print("%s (%.4f), expected %s" % (SPECIES[chosen], prediction["probabilities"][chosen], SPECIES[expected]))
    print(sorted(classifier.get_variable_names()))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run(main)
