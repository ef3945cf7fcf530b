"""What a run does and why it waits: figures, verdicts, and the report on a step that does not move."""
