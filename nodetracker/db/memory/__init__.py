"""The store port over dicts: what tests and tools use where no database is needed.

It keeps every rule of the SQL store, proved by the same contract suite.
"""

from nodetracker.db.memory.store import MemoryStore

__all__ = ["MemoryStore"]
