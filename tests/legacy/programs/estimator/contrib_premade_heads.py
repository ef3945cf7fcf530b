"""Written by hand: heads of tf.contrib.estimator that TensorFlow 2 still has, under other names."""
import tensorflow as tf
from common.heads import try_in_turn

tf.logging.set_verbosity(tf.logging.ERROR)

try_in_turn(
    {
        "binary": lambda: tf.contrib.estimator.binary_classification_head(thresholds=[0.5]),
        "classes": lambda: tf.contrib.estimator.multi_class_head(3),
        "regression": lambda: tf.contrib.estimator.regression_head(),
    }
)
