"""Find out which losses of hosts the fleet survives, and store it: a child of a service."""

import sys
from typing import Any

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.model.errors import NodetrackerError
from nodetracker.model.serializer import decode
from nodetracker.model.settings import AdmissionPolicy
from nodetracker.process.child import take_task
from nodetracker.usecases.tolerance import refresh_tolerances


def main() -> int:
    """Refresh the stored answers as the task says; return the exit code."""
    try:
        _refresh(**take_task())
    except NodetrackerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _refresh(database: Any, policy: Any, interval: int) -> None:
    store = open_store(decode(DatabaseSettings, database))
    refresh_tolerances(store, decode(AdmissionPolicy, policy), interval)
    store.close()


if __name__ == "__main__":
    sys.exit(main())
