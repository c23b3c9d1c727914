"""Measures what audits and programs cost; `python -m tests.bench` prints the figures."""
