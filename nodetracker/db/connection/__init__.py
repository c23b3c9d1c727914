"""Connect to the database: URL, engine, error translation, differences between servers."""
