"""Worker processes: make the batches of a random-access source without the interpreter of the training loop."""
