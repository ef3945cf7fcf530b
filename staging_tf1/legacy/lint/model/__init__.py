"""What the names of one file mean: its scopes, bindings and imports, read from Python's own syntax tree."""
