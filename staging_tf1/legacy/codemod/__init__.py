"""`staging-tf1 migrate`: rewrites TF1 source for `tensorflow.compat.v1` and this package."""
