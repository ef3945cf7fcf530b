"""The benchmark suite behind `staging-tf1 bench`.

A workload is a source and a training step. A system is a way to feed a workload. A worker is a process that measures
one system on one workload. In each round, all systems take one turn.
"""
