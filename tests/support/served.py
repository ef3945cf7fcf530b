"""A program of TensorFlow 2 that loads a served model and prints what it computes."""

from __future__ import annotations

LOADER = """
import json, sys
import tensorflow as tf
folder, given = sys.argv[1], json.loads(sys.argv[2])
served = tf.saved_model.load(folder).signatures["serving_default"]
spec = served.structured_input_signature[1]
got = served(**{name: tf.constant(value, spec[name].dtype) for name, value in given.items()})
print(json.dumps({name: value.numpy().tolist() for name, value in got.items()}))
"""
