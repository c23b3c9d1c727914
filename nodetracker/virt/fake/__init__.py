"""Driver of nodes and guests from a YAML file, for tests, demonstrations and sizing."""
