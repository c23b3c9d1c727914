"""Real servers for tests: private port and directory, own process, stopped by its id."""
