"""Frozen values, one noun a module; they know no file, clock, log or library."""
