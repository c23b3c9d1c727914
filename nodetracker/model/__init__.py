"""Frozen value types, one noun per module, without access to files, clocks, logs or libraries."""
