"""Faults alone and in pairs under load, and a judge that shares no code with what it judges."""
