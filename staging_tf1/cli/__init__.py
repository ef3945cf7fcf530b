"""The command line: one file a command, each with a `main(argv)`; none is loaded before it is called."""
