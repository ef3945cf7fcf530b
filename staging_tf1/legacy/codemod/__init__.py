"""`staging-tf1 migrate`: rewrites TF1 source code to use `tensorflow.compat.v1` and this package."""
