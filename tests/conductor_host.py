"""An SQLite store with the newest schema, for tests of what conductors serve."""

from pathlib import Path

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema.tables import metadata
from nodetracker.db.store import SqlStore, open_store


def open_sqlite(path: Path) -> SqlStore:
    """Open a store on a new file."""
    store = open_store(DatabaseSettings(f"sqlite:///{path}"))
    metadata.create_all(store.engine)
    return store
