"""`tf.estimator`, lent from the package `tensorflow-estimator`, which left TensorFlow with release 2.16.

TensorFlow 2.15 has the package as a dependency. On later releases the package's last release still works if a few
modules and names that TensorFlow removed stand in their old places while it loads.
"""
