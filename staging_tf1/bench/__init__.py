"""The benchmark suite behind `staging-tf1 bench`: workloads, systems that feed them, and a harness that compares.

A workload is work to do (a source and a training step); a system is a way to feed it; a worker is a process that
measures one system on one workload; the rounds let systems take turns.
"""
