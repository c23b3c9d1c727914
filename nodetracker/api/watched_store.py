"""A store that reports when its database has answered."""

from collections.abc import Callable
from typing import Any

from nodetracker.ports import Store
from nodetracker.ports.delegated_store import DelegatedStore


class WatchedStore(DelegatedStore):
    """`nodetracker.ports.Store` on top of another one.

    Args:
        note_success: called after each call that the database has answered.
    """

    def __init__(self, store: Store, note_success: Callable[[], None]) -> None:
        self._store = store
        self._note_success = note_success

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        answer = getattr(self._store, name)(*positional, **named)
        self._note_success()
        return answer
