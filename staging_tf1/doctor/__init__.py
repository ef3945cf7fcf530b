"""Why nothing moves: a snapshot that never blocks, a diagnosis of it, and both as text."""
