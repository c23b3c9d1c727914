"""Readers of the machine under /proc and /sys: pure ``parse_*`` and thin ``read_*``."""
