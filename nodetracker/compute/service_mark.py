"""Disable the service of a host while its driver has no source."""

from nodetracker.model.audit import AuditReport
from nodetracker.model.service import AUTO_PREFIX
from nodetracker.ports import AgentKey, AgentStore


class ServiceMark:
    """The reason for which the agent itself disables its service, written when it changes."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        # An earlier run of the agent, or a restored backup, may have left another reason.
        self._written: tuple[int, str | None] | None = None

    def update(self, agent: AgentKey, report: AuditReport) -> None:
        """Disable the service if no source answered the audit, else remove that reason.

        Raises:
            StoreError: it is not written; the next call writes it.
        """
        reason = None if report.is_driver_ready else f"{AUTO_PREFIX}{report.listing_error}"
        if self._written == (agent.epoch, reason):
            return
        self._store.mark_service(agent, reason)
        self._written = agent.epoch, reason
