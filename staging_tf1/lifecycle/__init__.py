"""The lifecycle of a session: start, warm up, step, drain, stop."""
