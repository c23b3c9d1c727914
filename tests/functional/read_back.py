"""Read a node's providers back with osc-placement's commands, and compare them with its row."""

import math
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from keystoneauth1 import session
from keystoneauth1.token_endpoint import Token
from osc_placement.http import SessionClient
from osc_placement.resources.allocation import ShowAllocation
from osc_placement.resources.allocation_candidate import ListAllocationCandidate
from osc_placement.resources.inventory import ListInventory
from osc_placement.resources.resource_provider import ListResourceProvider
from osc_placement.resources.trait import ListResourceProviderTrait
from osc_placement.resources.usage import ShowUsage

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.placement.comparison import compare
from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.model.claim import Claim
from nodetracker.model.node import NodeRecord
from nodetracker.model.pci import Alias
from nodetracker.placement.client import read_tree
from nodetracker.ports import AdmissionPolicy
from tests.functional.placement_host import make_client
from tests.functional.servers.placement import TOKEN, Placement
from tests.programs import Programs, wait_until

Amounts = dict[str, int]


@dataclass(frozen=True)
class Card:
    """What the provider of a PCI device has."""

    resource_class: str
    total: int
    used: int = 0
    reserved: int = 0
    traits: frozenset[str] = frozenset()


class Openstack:
    """Runs osc-placement's commands in process."""

    def __init__(self, url: str) -> None:
        authenticated = session.Session(auth=Token(url, TOKEN))
        client = SessionClient(authenticated, {"service_type": "placement"}, api_version="1.38")
        manager = SimpleNamespace(session=authenticated, placement=client)
        self.app = SimpleNamespace(client_manager=manager)

    def list(self, command: Any, *arguments: str) -> list[dict[str, Any]]:
        """Return the rows of a command as dicts."""
        instance = command(self.app, None)
        columns, rows = instance.take_action(instance.get_parser("openstack").parse_args(arguments))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def has_candidate(self, provider: str, **amounts: int) -> bool:
        """Return whether a provider's tree is among the allocation candidates for some amounts."""
        arguments = [f"--resource={name}={amount}" for name, amount in amounts.items()]
        found = self.list(ListAllocationCandidate, *arguments)
        return provider in {row["resource provider"] for row in found}


class ReadBack:
    """A host whose agent reports to the real placement, and what its commands show of it.

    Args:
        aliases: of PCI devices that claims name.
    """

    def __init__(
        self, programs: Programs, placement: Placement, aliases: Mapping[str, Alias] | None = None
    ) -> None:
        self.programs = programs
        self.policy = AdmissionPolicy(10**6, 600, aliases=aliases or {})
        self.openstack = Openstack(placement.url)
        self.client = make_client(programs.directory, placement.configuration())
        self.store = open_store(DatabaseSettings(programs.connection))

    def close(self) -> None:
        self.store.close()

    def node(self, nodename: str) -> NodeRecord:
        """Return the row of a node."""
        return next(n for n in self.store.load_nodes(self.programs.host) if n.nodename == nodename)

    def claim(
        self, nodename: str, workload: str = "", kind: str = "instance", **body: Any
    ) -> Claim:
        """Claim for a workload, by default a new one."""
        owner = {"project_id": "p", "user_id": "u", "kind": kind}
        body["workload"] = {"uuid": workload or str(uuid.uuid4())} | owner
        request = parse_claim_request(body)
        return self.store.create_claim(request, self.programs.host, nodename, self.policy)

    def admits(self, nodename: str, **amounts: int) -> bool:
        """Return whether the ledger would grant some amounts."""
        body = {"workload": {"uuid": str(uuid.uuid4())}, "resources": amounts}
        request = parse_claim_request(body)
        return not self.store.try_claim(request, self.programs.host, nodename, self.policy).reasons

    def wait(self) -> None:
        """Wait until placement has all that the ledger has."""

        def agrees() -> bool:
            return not any(
                list(
                    compare(read_tree(self.client, record.uuid), describe_tree(record, False, True))
                )
                for record in self.store.load_nodes(self.programs.host)
            )

        wait_until(agrees, 60, 0.1)

    def check(self, nodename: str, cards: Mapping[str, Card] | None = None) -> None:
        """Compare everything that the commands show of a node with its row and its ledger.

        Args:
            cards: address -> what the provider of a PCI device has.
        """
        node, show = self.node(nodename), self.openstack.list
        children = {_child(node, address): card for address, card in (cards or {}).items()}
        tree = show(ListResourceProvider, "--in-tree", node.uuid)
        names = {_child(node, address): f"{nodename}_{address.upper()}" for address in cards or {}}
        assert {row["uuid"]: row["name"] for row in tree} == names | {node.uuid: nodename}, tree
        root = {row["resource_class"]: row for row in show(ListInventory, node.uuid)}
        ratios = {name: row["allocation_ratio"] for name, row in root.items()}
        assert ({name: row["total"] for name, row in root.items()}, ratios) == _capacity(node)
        traits = {row["name"] for row in show(ListResourceProviderTrait, node.uuid)}
        assert traits == {*node.values.traits, "COMPUTE_NODE", "CUSTOM_OWNER_NODETRACKER"}
        for provider, card in children.items():
            (row,) = show(ListInventory, provider)
            assert row["resource_class"] == card.resource_class
            assert (row["total"], row["used"], row["reserved"]) == (
                card.total, card.used, card.reserved
            )  # fmt: skip
            found = {row["name"] for row in show(ListResourceProviderTrait, provider)}
            assert found == card.traits | {"COMPUTE_MANAGED_PCI_DEVICE"}
        used = {row["resource_class"]: row["usage"] for row in show(ShowUsage, node.uuid)}
        assert used == dict.fromkeys(root, 0) | self._check_claims(node, children)
        for name, row in root.items():
            self._check_free(node, name, row, used[name])

    def _check_claims(self, node: NodeRecord, children: Mapping[str, Card]) -> Amounts:
        """Compare allocations with claims; return their sum on the node's own provider."""
        total: Amounts = defaultdict(int)
        for claim in node.claims.values():
            found = self.openstack.list(ShowAllocation, claim.workload.uuid)
            wanted = {node.uuid: _amounts(claim)}
            for address in claim.devices:
                card = node.devices[address].parent_addr
                provider = _child(node, card or address)
                kept = wanted.setdefault(provider, defaultdict(int))
                kept[children[provider].resource_class] += 1
            assert {row["resource_provider"]: row["resources"] for row in found} == wanted
            kinds = {(row["consumer_type"], row["project_id"], row["user_id"]) for row in found}
            assert kinds == {(f"NODETRACKER_{claim.workload.kind.name}", "p", "u")}
            for name, amount in _amounts(claim).items():
                total[name] += amount
        return dict(total)

    def _check_free(self, node: NodeRecord, name: str, row: dict[str, Any], used: int) -> None:
        """Compare how much of a class both would still grant."""
        free = math.floor((row["total"] - row["reserved"]) * row["allocation_ratio"]) - used
        fits, beyond = min(free, row["total"]), free + math.ceil(1 + row["allocation_ratio"])
        if fits > 0:
            assert self.openstack.has_candidate(node.uuid, **{name: fits})
            assert self.admits(node.nodename, **{name: fits})
        assert not self.openstack.has_candidate(node.uuid, **{name: beyond})
        assert not self.admits(node.nodename, **{name: beyond})


def _child(node: NodeRecord, address: str) -> str:
    return str(uuid.uuid5(uuid.UUID(node.uuid), address))


def _capacity(node: NodeRecord) -> tuple[Amounts, dict[str, float]]:
    """Return total and allocation ratio of each class of which a row has any."""
    values = node.values
    classes = {
        "VCPU": (values.vcpus, values.cpu_allocation_ratio),
        "PCPU": (values.pcpus, 1.0),
        "MEMORY_MB": (values.memory_mb, values.ram_allocation_ratio),
        "DISK_GB": (values.local_gb, values.disk_allocation_ratio),
    }
    for name, entry in values.inventory.items():
        classes[name] = (entry["total"], entry["allocation_ratio"])
    classes = {name: entry for name, entry in classes.items() if entry[0]}
    return (
        {name: total for name, (total, _) in classes.items()},
        {name: ratio for name, (_, ratio) in classes.items()},
    )


def _amounts(claim: Claim) -> Amounts:
    """Return the whole units of what the ledger charges a claim."""
    amounts = claim.amounts
    found = {
        "VCPU": amounts.vcpu_milli // 1000, "PCPU": amounts.pcpus,
        "MEMORY_MB": amounts.memory_mb, "DISK_GB": amounts.disk_mb // 1024, **amounts.resources,
    }  # fmt: skip
    return {name: amount for name, amount in found.items() if amount}
