"""Compare the ledger with placement, and make placement agree, when an operator requests it."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from nodetracker.accounting.placement.comparison import NOTHING, compare, list_unexplained
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import (
    NOVA_TRAIT,
    PlacedTree,
    ProviderSummary,
    ProviderTree,
)
from nodetracker.model.errors import NotFoundError, PlacementError, RefusedError
from nodetracker.model.node import NodeRecord
from nodetracker.model.provider import ProviderRemoval, RemovalQuery
from nodetracker.model.service import AdminState
from nodetracker.model.text import count_noun
from nodetracker.placement.client import PlacementClient, read_tree
from nodetracker.placement.reconciler import Reconciler, is_in_ledger
from nodetracker.placement.removal import ProviderRemover
from nodetracker.placement.state import NodeState
from nodetracker.ports import Store
from nodetracker.usecases.reads import find_agent, read_consistently


@dataclass(frozen=True, slots=True)
class PlacementDifference:
    """One thing of a node that placement has otherwise than the ledger.

    Attributes:
        what, expected, found: as in `Difference`.
        result: what `PlacementHealer.heal` did, or would do.
        is_left: it could not be healed; `result` says why.
    """

    host: str
    nodename: str
    provider: str
    what: str
    expected: str
    found: str
    result: str = ""
    is_left: bool = False


class PlacementHealer:
    """Works on one node after the other; each method asks placement.

    Args:
        reports_devices: ``[pci] report_in_placement`` of this machine, for hosts whose agent
            has not reported its own yet.
    """

    def __init__(self, client: PlacementClient, store: Store, reports_devices: bool) -> None:
        self._client = client
        self._store = store
        self._reports_devices = reports_devices
        self._reconciler = Reconciler(client, partial(is_in_ledger, store), time.sleep)
        self._remover = ProviderRemover(client, store)

    def describe(self, record: NodeRecord) -> ProviderTree:
        """Describe what placement should have of a node, as its agent does."""
        service = find_agent(self._store, record.host)
        admin, reports_devices = AdminState(), self._reports_devices
        if service is not None:
            admin = AdminState(service.disabled, service.maintenance, service.spare)
            reports_devices = service.last_audit.get("reports_devices", reports_devices)
        return describe_tree(record, admin.is_excluded, reports_devices, admin.spare)

    def read(self, provider: str) -> PlacedTree:
        """Read what placement has of a node."""
        return read_tree(self._client, provider)

    def find_name_holder(self, record: NodeRecord) -> ProviderSummary | None:
        """Return another provider that has a node's name."""
        holders = self._client.list_providers(name=record.nodename)
        return next((holder for holder in holders if holder.uuid != record.uuid), None)

    def audit(self, host: str | None = None) -> Iterator[PlacementDifference]:
        """Yield the differences of a host's nodes, or of all; write nothing.

        Raises:
            NotFoundError: the host has no agent, no node and no removal.
        """
        for record in self._list_records(host):
            found, missing = self._compare(record), (record.uuid, "provider", NOTHING)
            is_missing = any((item.provider, item.what, item.found) == missing for item in found)
            holder = self.find_name_holder(record) if is_missing else None
            yield from found if holder is None else [_name_held(record, record.uuid, holder)]
        yield from map(_not_removed, self._store.list_provider_removals(host))

    def heal(self, host: str | None = None, is_dry: bool = False) -> Iterator[PlacementDifference]:
        """Make placement agree with the ledger: nodes, leaked consumers, deleted nodes.

        An empty provider of another uuid that has a node's name is deleted, unless it is Nova's.

        Args:
            is_dry: write nothing.

        Raises:
            NotFoundError: as `audit`.
        """
        for record in self._list_records(host):
            holder = self.find_name_holder(record)
            if holder is not None:
                other = _name_held(record, holder.uuid, holder)
                kept = self._delete_other(holder, is_dry)
                if kept is not None:
                    yield replace(other, result=f"kept: {kept}", is_left=True)
                    continue
                yield replace(other, result="would be deleted" if is_dry else "deleted")
            yield from self._heal_node(record, is_dry)
        if is_dry:
            for removal in self._store.list_provider_removals(host):
                yield replace(_not_removed(removal), result="would be removed")
            return
        for removal in self._remover.remove_due(RemovalQuery(host=host, is_urgent=True)):
            is_left = removal.error is not None
            result = f"kept: {removal.error}" if is_left else "removed"
            yield replace(_not_removed(removal), result=result, is_left=is_left)

    def adopt(self, record: NodeRecord, is_forced: bool = False, is_dry: bool = False) -> str:
        """Give a node the uuid of the provider that has its name; return that uuid.

        Args:
            is_forced: adopt a provider of Nova's, too.
            is_dry: write nothing.

        Raises:
            RefusedError: there is none, it cannot be a node's, or the node's uuid stays.
        """
        holder = self.find_name_holder(record)
        if holder is None:
            raise RefusedError(f"no other provider has the name of node {record.nodename}")
        if holder.parent_uuid is not None:
            raise RefusedError(
                f"provider {holder.uuid} is a child of provider {holder.parent_uuid}: a node needs "
                "a provider without a parent"
            )
        self._check_uuid(record)
        if not is_forced and NOVA_TRAIT in self._client.read_traits(holder.uuid)[1]:
            raise RefusedError(
                f"provider {holder.uuid} has the trait {NOVA_TRAIT}: a nova-compute reports to it; "
                "force adopts it"
            )
        if not is_dry:
            self._store.adopt_uuid(record.host, record.nodename, record.uuid, holder.uuid)
        return holder.uuid

    def remove(self, record: NodeRecord) -> None:
        """Remove the provider of a node.

        Raises:
            RefusedError: it has to stay.
        """
        error = self._remover.remove(record.uuid)
        if error is not None:
            raise RefusedError(f"provider {record.uuid} of node {record.nodename} is kept: {error}")

    def _list_records(self, host: str | None) -> Iterator[NodeRecord]:
        """Yield the nodes of a host, or of all hosts, each with its claims and guests."""
        nodes, store = self._store.list_nodes(host), self._store
        if host is not None and not (
            nodes or find_agent(store, host) or store.list_provider_removals(host)
        ):
            raise NotFoundError(f"no such host: {host}")
        for node in nodes:
            yield read_consistently(store, node)

    def _compare(self, record: NodeRecord) -> list[PlacementDifference]:
        names = {item.workload.uuid: item.workload.name for item in record.claims.values()}
        found = compare(self.read(record.uuid), self.describe(record), names)
        return [
            PlacementDifference(
                record.host, record.nodename, item.provider, item.what, item.expected, item.found
            )
            for item in found
        ]

    def _delete_other(self, holder: ProviderSummary, is_dry: bool) -> str | None:
        """Delete a provider unless somebody needs it; return why it is kept."""
        if holder.parent_uuid is not None:
            return f"it is a child of provider {holder.parent_uuid}"
        placed = self.read(holder.uuid)
        if any(NOVA_TRAIT in provider.traits for provider in placed.providers.values()):
            return f"it has the trait {NOVA_TRAIT}"
        if placed.consumers:
            return f"it has allocations of {count_noun(len(placed.consumers), 'consumer')}"
        return None if is_dry else self._remover.remove(holder.uuid)

    def _heal_node(self, record: NodeRecord, is_dry: bool) -> Iterator[PlacementDifference]:
        """Report a node, and remove the consumers that its ledger does not know."""
        before, error, left = self._compare(record), "", frozenset[tuple[str, str]]()
        if before and not is_dry:
            error = self._reconcile(record) or "it changes all the time"
            left = frozenset((item.provider, item.what) for item in self._compare(record))
        for item in before:
            is_left = (item.provider, item.what) in left
            result = "would be healed" if is_dry else "healed"
            yield replace(
                item, result=f"not {result}: {error}" if is_left else result, is_left=is_left
            )

    def _reconcile(self, record: NodeRecord) -> str:
        """Report one node; return why that failed, or nothing."""
        wanted = self.describe(record)
        state = NodeState(healed=frozenset(list_unexplained(self.read(record.uuid), wanted)))
        try:
            self._reconciler.reconcile(state, wanted)
        except PlacementError as error:
            return str(error)
        return "; ".join(sorted(state.refused.values()))

    def _check_uuid(self, record: NodeRecord) -> None:
        """Check that the node's uuid was derived by an agent, and is not its driver's.

        Raises:
            RefusedError: it is the driver's, or that is not known.
        """
        service = find_agent(self._store, record.host)
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


def _name_held(record: NodeRecord, provider: str, holder: ProviderSummary) -> PlacementDifference:
    """Return that another provider has a node's name."""
    what = f"name {record.nodename}"
    return PlacementDifference(
        record.host, record.nodename, provider, what, record.uuid, holder.uuid
    )


def _not_removed(removal: ProviderRemoval) -> PlacementDifference:
    error = removal.error or "waiting"
    return PlacementDifference(
        removal.host, removal.name, removal.provider_uuid, "removal", NOTHING, error
    )
