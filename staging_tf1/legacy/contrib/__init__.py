"""The parts of `tf.contrib` that user code finds under the shim."""
