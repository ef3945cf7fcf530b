"""Threads that carry batches from sources into the graph; makes no op itself."""
