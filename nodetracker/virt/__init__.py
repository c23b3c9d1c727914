"""Drivers: a folder each, found by entry point, behind one port."""
