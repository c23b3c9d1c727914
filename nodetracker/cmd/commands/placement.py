"""Commands that compare the ledger with placement: show, audit, heal, adopt and remove."""

import argparse
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from nodetracker.accounting.placement.comparison import (
    NOTHING,
    compare,
    draw_consumer,
    draw_provider,
    list_unexplained,
    render_consumers,
    render_provider,
)
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import (
    NOVA_TRAIT,
    PlacedTree,
    ProviderSummary,
    ProviderTree,
)
from nodetracker.bootstrap.clients import build_placement_client
from nodetracker.cmd.commands.base import (
    NODE,
    ListCommand,
    ShowCommand,
    StoreCommand,
    argument,
    flag,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.fleet.reads import find_agent, find_node, read_consistently
from nodetracker.model.errors import NotFoundError, PlacementError, RefusedError
from nodetracker.model.node import NodeRecord
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.serializer import pick
from nodetracker.model.service import AdminState
from nodetracker.model.text import count_noun
from nodetracker.process.daemon import EXIT_FAILED

if TYPE_CHECKING:
    from nodetracker.placement.client import PlacementClient
    from nodetracker.placement.removal import ProviderRemover


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
        from nodetracker.placement.removal import ProviderRemover

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
        from nodetracker.placement.client import read_tree

        return read_tree(self.client, provider)

    def find_name_holder(self, record: NodeRecord) -> ProviderSummary | None:
        """Return another provider that has a node's name."""
        holders = self.client.list_providers(name=record.nodename)
        return next((holder for holder in holders if holder.uuid != record.uuid), None)


_LAYOUT = (  # of both
    Column("host", ("host",), Kind.FLEXIBLE),
    Column("node", ("nodename",), Kind.FLEXIBLE, 1, same_as="host"),
    Column("provider", ("provider",), Kind.TEXT, 2),
    Column("what", ("what",), Kind.FLEXIBLE, least=20),
)


class ShowPlacement(PlacementCommand, ShowCommand):
    """Show what placement has of a node, and whose its consumers are."""

    example = "placement show compute-1"
    arguments = NODE

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        record = read_consistently(self.store, find_node(self.store, args.host, args.nodename))
        placed, wanted = self.read(record.uuid), self.describe(record)
        holder = self.find_name_holder(record)
        providers = [render_provider(placed, uuid) for uuid in sorted(placed.providers)]
        consumers = render_consumers(placed, wanted)
        return {
            **pick(record, "host", "nodename", "uuid"),
            "name_held_by": None if holder is None else holder.uuid,
            "providers": Lines(providers, [line for p in providers for line in draw_provider(p)]),
            "consumers": Lines(consumers, map(draw_consumer, consumers)),
        }


class AuditPlacement(PlacementCommand, ListCommand):
    """Compare placement with the ledger; exit with 1 when anything differs. Writes nothing."""

    example = "placement audit --host compute-1"

    columns = ("host", "nodename", "provider", "what", "expected", "found")
    layout = (
        *_LAYOUT,
        Column("expected", ("expected",), Kind.FLEXIBLE, least=12),
        Column("found", ("found",), Kind.FLEXIBLE, least=12),
    )
    arguments = (argument("--host", help="Only the nodes of this host."),)

    def list_rows(self, args: argparse.Namespace) -> Iterator[dict[str, str]]:
        for record in self.list_records(args.host):
            for line in self._audit(record):
                yield self._row(record.host, record.nodename, *line)
        for removal in self.store.list_provider_removals(args.host):
            error = removal.error or "waiting"
            yield self._row(*_identify(removal), "removal", NOTHING, error)

    def _row(self, *values: str) -> dict[str, str]:
        self.exit_code = EXIT_FAILED
        return dict(zip(self.columns, values, strict=True))

    def _audit(self, record: NodeRecord) -> Iterator[tuple[str, str, str, str]]:
        """Yield provider, what differs, what is expected and what was found."""
        placed = self.read(record.uuid)
        if not placed.providers and (holder := self.find_name_holder(record)) is not None:
            yield record.uuid, f"name {record.nodename}", record.uuid, holder.uuid
            return
        for difference in compare(placed, self.describe(record)):
            yield difference.provider, difference.what, difference.expected, difference.found


class HealPlacement(PlacementCommand, ListCommand):
    """Make placement agree with the ledger now: nodes, leaked consumers, deleted nodes.

    An empty provider of another uuid that has a node's name is deleted, unless it is Nova's.
    """

    example = "placement heal --dry-run"

    columns = ("host", "nodename", "provider", "what", "result")
    layout = (*_LAYOUT, Column("result", ("result",), Kind.FLEXIBLE))
    arguments = (
        argument("--host", help="Only the nodes of this host."),
        flag("--dry-run", "Write nothing."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterator[dict[str, str]]:
        is_dry = args.dry_run
        for record in self.list_records(args.host):
            for line in self._heal(record, is_dry):
                yield self._row(record.host, record.nodename, *line)
        heal = self._list_removals if is_dry else self._heal_removals
        for removal, result in heal(args.host):
            yield self._row(*_identify(removal), "removal", result)

    def _row(self, *values: str) -> dict[str, str]:
        return dict(zip(self.columns, values, strict=True))

    def _heal(self, record: NodeRecord, is_dry: bool) -> Iterator[tuple[str, str, str]]:
        """Delete an empty provider that has the node's name, and report the node."""
        holder = self.find_name_holder(record)
        if holder is not None:
            obstacle = self._delete_rival(holder, is_dry)
            result = "would be deleted" if is_dry else "deleted"
            if obstacle is not None:
                yield holder.uuid, f"name {record.nodename}", self._fail(f"kept: {obstacle}")
                return
            yield holder.uuid, f"name {record.nodename}", result
        yield from self._heal_node(record, is_dry)

    def _delete_rival(self, holder: ProviderSummary, is_dry: bool) -> str | None:
        """Delete a provider unless somebody needs it; return why it is kept."""
        if holder.parent_uuid is not None:
            return f"it is a child of provider {holder.parent_uuid}"
        placed = self.read(holder.uuid)
        if any(NOVA_TRAIT in provider.traits for provider in placed.providers.values()):
            return f"it has the trait {NOVA_TRAIT}"
        if placed.consumers:
            return f"it has allocations of {count_noun(len(placed.consumers), 'consumer')}"
        return None if is_dry else self.remover.remove(holder.uuid)

    def _heal_node(self, record: NodeRecord, is_dry: bool) -> Iterator[tuple[str, str, str]]:
        """Report a node, and remove the consumers that its ledger does not know."""
        wanted = self.describe(record)
        before = compare(self.read(record.uuid), wanted)
        error, left = NOTHING, frozenset[tuple[str, str]]()
        if before and not is_dry:
            error = self._reconcile(record, wanted)
            after = compare(self.read(record.uuid), wanted)
            left = frozenset((difference.provider, difference.what) for difference in after)
        for difference in before:
            result = "would be healed" if is_dry else "healed"
            if (difference.provider, difference.what) in left:
                result = self._fail(f"not healed: {error or 'it changes all the time'}")
            yield difference.provider, difference.what, result

    def _reconcile(self, record: NodeRecord, wanted: ProviderTree) -> str:
        """Report one node; return why that failed, or nothing."""
        from nodetracker.placement.reconciler import Reconciler, is_in_ledger
        from nodetracker.placement.state import NodeState

        healed = frozenset(list_unexplained(self.read(record.uuid), wanted))
        state = NodeState(healed=healed)
        try:
            Reconciler(self.client, partial(is_in_ledger, self.app.store), time.sleep).reconcile(
                state, wanted
            )
        except PlacementError as error:
            return str(error)
        return "; ".join(sorted(state.refused.values()))

    def _list_removals(self, host: str | None) -> Iterator[tuple[ProviderRemoval, str]]:
        for removal in self.store.list_provider_removals(host):
            yield removal, "would be removed"

    def _heal_removals(self, host: str | None) -> Iterator[tuple[ProviderRemoval, str]]:
        """Remove the providers of deleted nodes."""
        for removal in self.remover.remove_due(RemovalQuery(host=host, is_urgent=True)):
            error = removal.error
            yield removal, "removed" if error is None else self._fail(f"kept: {error}")

    def _fail(self, result: str) -> str:
        self.exit_code = EXIT_FAILED
        return result


class AdoptProvider(PlacementCommand, ListCommand):
    """Give a node the uuid of the provider that has its name, so that it is reported to."""

    example = "placement adopt compute-1 --dry-run"
    columns = ("host", "nodename", "before", "uuid")
    arguments = (
        *NODE,
        flag("--force", "Adopt a provider of Nova's too."),
        flag("--dry-run", "Write nothing."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, str]]:
        record = find_node(self.store, args.host, args.nodename)
        holder = self.find_name_holder(record)
        if holder is None:
            raise RefusedError(f"no other provider has the name of node {record.nodename}")
        if holder.parent_uuid is not None:
            raise RefusedError(
                f"provider {holder.uuid} is a child of provider {holder.parent_uuid}: a node needs "
                "a provider without a parent"
            )
        self._check_uuid(record)
        if not args.force and NOVA_TRAIT in self.client.read_traits(holder.uuid)[1]:
            raise RefusedError(
                f"provider {holder.uuid} has the trait {NOVA_TRAIT}: a nova-compute reports to it; "
                "--force adopts it"
            )
        if not args.dry_run:
            self.store.adopt_uuid(record.host, record.nodename, record.uuid, holder.uuid)
        identity = {"host": record.host, "nodename": record.nodename}
        return [identity | {"before": record.uuid, "uuid": holder.uuid}]

    def _check_uuid(self, record: NodeRecord) -> None:
        """Check that the node's uuid was derived by an agent, and is not its driver's.

        Raises:
            RefusedError: it is the driver's, or that is not known.
        """
        service = find_agent(self.store, record.host)
        if service is None:
            raise RefusedError(f"host {record.host} has no agent that derived the node's uuid")
        if not service.last_audit.get("has_driver_uuids", True):
            return  # also after a change of the nodename or of the agent
        agent_id = uuid.UUID(service.incarnation.agent_id)
        if record.uuid != str(uuid.uuid5(agent_id, record.nodename)):
            raise RefusedError(
                f"the uuid {record.uuid} of node {record.nodename} is its driver's and stays: "
                "the other provider has to go, see placement heal"
            )


class RemovePlacement(PlacementCommand, ListCommand):
    """Remove the provider of a node whose agent no longer reports to placement.

    An agent that still reports creates it again.
    """

    example = "placement remove compute-1"
    columns = ("host", "nodename", "provider")
    arguments = NODE

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, str]]:
        record = find_node(self.store, args.host, args.nodename)
        error = self.remover.remove(record.uuid)
        if error is not None:
            raise RefusedError(f"provider {record.uuid} of node {record.nodename} is kept: {error}")
        return [{"host": record.host, "nodename": record.nodename, "provider": record.uuid}]


def _identify(removal: ProviderRemoval) -> tuple[str, str, str]:
    return removal.host, removal.name, removal.provider_uuid
