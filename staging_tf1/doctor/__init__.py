"""Why a step does not return: a snapshot that never blocks, its diagnosis, and both as text."""
