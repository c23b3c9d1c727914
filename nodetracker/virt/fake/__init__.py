"""The driver whose nodes and guests stand in a YAML file: for tests, demonstrations and sizing."""
