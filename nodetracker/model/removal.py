"""Providers in placement whose nodes were deleted."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """A row of ``provider_removals``: a provider that is to be deleted from placement.

    Attributes:
        provider_uuid, name: of the provider, which are those of the deleted node.
        host: of the deleted node.
        workloads: uuids of the workloads that had claims on the node, sorted.
        attempts: number of times that a process started to remove it.
        error: why the last attempt failed; None while one runs, or before the first.
        lease_until: no other process attempts it before.
    """

    provider_uuid: str
    name: str
    host: str
    workloads: tuple[str, ...]
    created_at: datetime
    attempts: int = 0
    error: str | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RemovalQuery:
    """Which removals a process takes.

    Attributes:
        host: only of this host; None = of all.
        is_unserved: only of hosts without an agent's service.
        is_urgent: also those whose last attempt failed and whose next one is not due yet.
        lease_seconds: for which no other process takes them.
        limit: the most to take.
    """

    host: str | None = None
    is_unserved: bool = False
    is_urgent: bool = False
    lease_seconds: float = 120.0
    limit: int = 100
