"""An example training program that uses only public names of the package. `staging-tf1 train` runs it.

`workflows` has three ways to bring batches into a graph, `model` has the classifier, and `training` has the training
loop.
"""
