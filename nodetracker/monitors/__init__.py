"""Monitors: measurements of this machine for the metrics of its nodes."""
