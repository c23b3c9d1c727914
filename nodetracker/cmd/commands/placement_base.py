"""Base of the commands that compare the ledger with placement."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.placed import PlacedTree, ProviderSummary
from nodetracker.accounting.placement.tree import ProviderTree
from nodetracker.bootstrap.placement import build_placement_client
from nodetracker.cmd.commands.base import StoreCommand
from nodetracker.cmd.commands.node import find_agent
from nodetracker.fleet.reads import read_consistently
from nodetracker.model.errors import NotFoundError
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import AdminState

if TYPE_CHECKING:  # imported late, with keystoneauth
    from nodetracker.placement.client import PlacementClient
    from nodetracker.placement.remover import ProviderRemover


class PlacementCommand(StoreCommand):
    """Mixin of commands that query placement, with the credentials of ``[placement]``."""

    @cached_property
    def client(self) -> "PlacementClient":
        """The client of placement.

        Raises:
            ConfigError: ``[placement]`` does not say how to authenticate.
        """
        return build_placement_client(self.app.conf)

    @cached_property
    def remover(self) -> "ProviderRemover":
        """Removes providers."""
        from nodetracker.placement.remover import ProviderRemover

        return ProviderRemover(self.client, self.store)

    def list_records(self, host: str | None) -> Iterator[NodeRecord]:
        """Yield the nodes of a host, or of all hosts, each with its claims and guests.

        Raises:
            NotFoundError: the host has no agent, no node and no removal.
        """
        nodes = self.store.list_nodes(host)
        if host is not None and not nodes and not self._is_known(host):
            raise NotFoundError(f"no such host: {host}")
        for node in nodes:
            yield read_consistently(self.store, node)

    def _is_known(self, host: str) -> bool:
        return bool(find_agent(self.store, host) or self.store.list_provider_removals(host))

    def describe(self, record: NodeRecord) -> ProviderTree:
        """Describe what placement should have of a node, as its agent does.

        This machine's ``[pci] report_in_placement`` counts only for hosts whose
        agent has not reported its own yet.
        """
        service = find_agent(self.store, record.host)
        admin, reports_devices = AdminState(), self.app.conf.pci.report_in_placement
        if service is not None:
            admin = AdminState(service.disabled, service.maintenance)
            reports_devices = service.last_audit.get("reports_devices", reports_devices)
        return describe_tree(record, admin.is_excluded, reports_devices)

    def read(self, provider: str) -> PlacedTree:
        """Read what placement has of a node."""
        from nodetracker.placement.tree_reader import read_tree

        return read_tree(self.client, provider)

    def find_rival(self, record: NodeRecord) -> ProviderSummary | None:
        """Return another provider that has a node's name."""
        holders = self.client.list_providers(name=record.nodename)
        return next((holder for holder in holders if holder.uuid != record.uuid), None)
