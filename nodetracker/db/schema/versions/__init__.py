"""Revisions of the schema, in order. What a released one creates is never changed."""
