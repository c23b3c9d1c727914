"""Serve HTTP, for the REST service, conductors and agents: listeners, limits, threads."""
