"""When things happen: start, warm up, step, drain, stop."""
