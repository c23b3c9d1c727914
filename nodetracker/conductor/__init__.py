"""The store port over HTTP: conductors work with the database for those that do not."""
