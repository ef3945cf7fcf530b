"""Reads a `tf.data.Dataset` outside of any training run."""
