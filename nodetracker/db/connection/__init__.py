"""The connection to the database: URL, engine, failures, what differs between servers."""
