"""The part of the store that records which providers are to be deleted from placement."""

from typing import Protocol

from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.ports.methods import repeatable


class RemovalStore(Protocol):
    """Removals of providers; each is recorded in the transaction that deletes the node's row.

    Every method may raise the errors of `FleetStore`.
    """

    @repeatable
    def list_provider_removals(self, host: str | None = None) -> list[ProviderRemoval]:
        """Return removals that are not finished, the oldest first, by one statement."""

    def take_provider_removals(self, query: RemovalQuery) -> list[ProviderRemoval]:
        """Lease the removals that are due, the oldest first; without any, by one statement.

        Those of nodes that exist again are deleted instead.
        """

    def fail_provider_removal(self, provider_uuid: str, error: str, retry_seconds: float) -> None:
        """Record why a removal that was taken failed; it is due again after `retry_seconds`."""

    @repeatable
    def finish_provider_removal(self, provider_uuid: str) -> None:
        """Delete a removal that was taken, because the provider exists no longer.

        One that was recorded since is kept: the node was created and deleted again.
        """
