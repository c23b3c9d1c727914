"""Implement the store port over dicts, for tests and tools that need no database.

It follows every rule of the SQL store; the same contract suite tests both.
"""

from nodetracker.db.memory.store import MemoryStore

__all__ = ["MemoryStore"]
