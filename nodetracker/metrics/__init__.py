"""Metrics of an agent for Prometheus, one module per subject, and their pages."""
