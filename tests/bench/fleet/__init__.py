"""Measure the load of a fleet of agents on the servers that they share."""
