"""A store that notes in which calls its database answers, and in which it is away."""

import logging
from collections.abc import Callable
from typing import Any

from nodetracker.model.errors import SchemaError, StoreError, StoreUnavailableError
from nodetracker.ports import Store
from nodetracker.ports.delegated_store import DelegatedStore
from nodetracker.process.outage import OutageLog

LOG = logging.getLogger(__name__)

_SETTLE_SECONDS = 5.0
_ACTIVITY = "request"


def make_outage_log() -> OutageLog:
    """Return the log of the database's outages for a process that serves requests."""
    return OutageLog("The database", StoreError, LOG, settle_seconds=_SETTLE_SECONDS)


class WatchedStore(DelegatedStore):
    """`nodetracker.ports.Store` on top of another one.

    Args:
        database: logs the outages of the database.
        note_success: called after each call that the database has answered.
    """

    def __init__(
        self, store: Store, database: OutageLog, note_success: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._database = database
        self._note_success = note_success

    def close(self) -> None:
        """Close the store, which is no answer of the database."""
        self._store.close()

    def _delegate(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            answer = getattr(self._store, name)(*positional, **named)
        except (StoreUnavailableError, SchemaError) as error:
            # Without the error, the log formatter would append its traceback.
            failure: Exception = error
        else:
            self._database.note_success(_ACTIVITY)
            self._note_success()
            return answer
        self._database.note_failure(_ACTIVITY, failure)
        raise failure
