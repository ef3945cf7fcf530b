"""Wide and deep: crossed and bucketized columns for the linear part, embeddings for the network, text files as input."""
from __future__ import absolute_import, division, print_function

import os
import tempfile

import numpy as np
import tensorflow as tf
from common import NumpyWeights, show

COLUMNS = ["age", "hours", "education", "occupation", "income"]
DEFAULTS = [[0], [0], [""], [""], [""]]
EDUCATIONS = ["school", "bachelor", "master"]
OCCUPATIONS = ["clerk", "farmer", "engineer", "teacher"]


def write_census(path, count, seed):
    rng = np.random.RandomState(seed)
    with open(path, "w") as file:
        for _ in range(count):
            age, hours, level, job = rng.randint(18, 80), rng.randint(10, 60), rng.randint(3), rng.randint(4)
            rich = age * 0.3 + hours * 0.4 + level * 12 + rng.normal(0, 4) > 42
            row = [age, hours, EDUCATIONS[level], OCCUPATIONS[job], ">50K" if rich else "<=50K"]
            file.write(",".join(map(str, row)) + "\n")


def build_columns():
    age = tf.feature_column.numeric_column("age", normalizer_fn=lambda years: (tf.to_float(years) - 45.0) / 20.0)
    hours = tf.feature_column.numeric_column("hours", normalizer_fn=lambda worked: (tf.to_float(worked) - 35.0) / 15.0)
    education = tf.feature_column.categorical_column_with_vocabulary_list("education", EDUCATIONS)
    occupation = tf.feature_column.categorical_column_with_hash_bucket("occupation", hash_bucket_size=20)
    buckets = tf.feature_column.bucketized_column(age, boundaries=[25, 35, 45, 55, 65])
    wide = [
        education,
        occupation,
        buckets,
        tf.feature_column.crossed_column(["education", "occupation"], hash_bucket_size=50),
        tf.feature_column.crossed_column([buckets, "education"], hash_bucket_size=50),
    ]
    deep = [
        age,
        hours,
        tf.feature_column.indicator_column(education),
        tf.feature_column.embedding_column(occupation, dimension=4),
    ]
    return wide, deep


def input_fn(path, epochs, batch_size):
    def parse(line):
        features = dict(zip(COLUMNS, tf.decode_csv(line, record_defaults=DEFAULTS)))
        labels = features.pop("income")
        return features, tf.equal(labels, ">50K")

    return tf.data.TextLineDataset(path).map(parse, num_parallel_calls=2).repeat(epochs).batch(batch_size)


def main(_):
    folder = tempfile.mkdtemp()
    train, test = os.path.join(folder, "train.csv"), os.path.join(folder, "test.csv")
    write_census(train, 200, seed=1)
    write_census(test, 60, seed=2)
    wide, deep = build_columns()
    model = tf.estimator.DNNLinearCombinedClassifier(
        model_dir=os.path.join(folder, "model"),
        linear_feature_columns=wide,
        dnn_feature_columns=deep,
        dnn_hidden_units=[16, 8],
        config=tf.estimator.RunConfig().replace(session_config=tf.ConfigProto(device_count={"GPU": 0})),
    )
    for _ in range(2):
        model.train(input_fn=lambda: input_fn(train, 6, 40), hooks=[NumpyWeights()])
        show("test", model.evaluate(input_fn=lambda: input_fn(test, 1, 40)))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
