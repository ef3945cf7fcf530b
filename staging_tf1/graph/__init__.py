"""Makes ops, runs none, starts no thread: areas, queues, `staged()`, and the guards around building them."""
