"""Read the warnings that an earlier run of the agent left active."""

import logging
from collections.abc import Sequence

from nodetracker.accounting.placement.warnings import PLACEMENT_KINDS
from nodetracker.model.errors import StoreError
from nodetracker.model.warning import HostWarning
from nodetracker.ports import Store

LOG = logging.getLogger(__name__)


class EarlierWarnings:
    """Warnings about placement that were active when the agent started."""

    def __init__(self, host: str, store: Store) -> None:
        self._host = host
        self._store = store
        self._warnings: tuple[HostWarning, ...] | None = None

    def list(self) -> Sequence[HostWarning]:
        """Return the warnings; they are read once, none are returned without a database."""
        if self._warnings is None:
            try:
                stored = self._store.list_warnings(self._host)
            except StoreError as error:  # no audit is stored either
                LOG.debug("The warnings of an earlier run were not read: %s", error)
                return ()
            self._warnings = tuple(
                record.warning
                for record in stored
                if record.resolved_at is None and record.warning.kind in PLACEMENT_KINDS
            )
        return self._warnings
