"""Audits: from a snapshot to the changes of a row."""
