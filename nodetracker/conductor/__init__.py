"""The store port over RPC: conductors work with the database for those that do not."""
