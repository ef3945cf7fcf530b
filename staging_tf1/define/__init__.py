"""Build time: what `staged()` and `CustomRunner` do while the graph is open."""
