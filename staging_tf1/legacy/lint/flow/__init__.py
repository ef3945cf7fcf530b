"""What a program does with its graph: which ops a run executes, in which session, thread, loop and device scope."""
