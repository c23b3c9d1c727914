"""Measure the costs of audits and programs; `python -m tests.bench` prints the figures."""
