"""The command line. Each command is one module with a `main(argv)`, imported when the command is called."""
