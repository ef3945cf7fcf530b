"""Pipelines at run time: threads that carry batches from sources into the graph. Makes no op."""
