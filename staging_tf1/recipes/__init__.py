"""A training program as a user would write it, by the package's public names: read it as an example.

`workflows` is three ways to bring batches into a graph, `model` is what they feed, and `training` is the loop
around both. `staging-tf1 train` runs it.
"""
