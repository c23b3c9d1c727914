"""Revisions of the schema, in order. A released one is never changed."""
