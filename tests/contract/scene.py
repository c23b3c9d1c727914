"""Hosts that share every name: what a write of one must not change is another's.

Both hosts' nodes have the same names and list the same guests and PCI addresses,
and an agent and a conductor run under one host name. Three workloads have claims
on several nodes, two of them are being moved between the same nodes, and two more
migrations have lost a claim. A third host is idle and disabled, as the conductors are.
"""

import dataclasses
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.change import ItemDiff, NodeChange
from nodetracker.model.claim import ClaimRequest, ClaimState, MigrationStatus
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa import CellAssignment
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType, PciStatus, TrackedDevice
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    AuditState,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy, AgentKey, Store
from tests.builders import (
    NODE_NAMESPACE,
    create,
    delete,
    key_of,
    make_device,
    make_guest,
    make_incarnation,
    make_values,
    take_service,
    update,
)

DOWN_TIME = 3600
POLICY = AdmissionPolicy(
    DOWN_TIME,
    claim_timeout=600,
    aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)},
)
PLACES = {
    "a1": ("alpha", "n1"),
    "a2": ("alpha", "n2"),
    "b1": ("beta", "n1"),
    "b2": ("beta", "n2"),
    "g1": ("gamma", "n1"),
}
"""Label of a node -> its host and name."""

FPGAS = {"a1": 5, "a2": 2, "b1": 5, "b2": 3, "g1": 1}
"""Label of a node -> its FPGAs, no more than its active claims have at any time."""

WORKLOADS = ("web", "db", "queue")
ADDRESSES = tuple(f"0000:81:00.{number}" for number in range(8))
CPU = HostWarning(WarningKind.FACT_HELD, "n1", "cpu", "held")
SKEW = HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")
CUT_OFF = HostWarning(WarningKind.AGENT_UNREACHABLE, "", "", "no broker")
PAST = HostWarning(WarningKind.FACT_HELD, "n2", "cpu", "held")
PASSED = HostWarning(WarningKind.FACT_HELD, "n2", "memory", "held")

NAMES: dict[str, str] = {}
"""Uuid -> name of what has a uuid: nodes by label, workloads, claims and migrations."""


def uuid_of(name: str) -> str:
    """Return the uuid of a name, always the same, and remember the name."""
    found = str(uuid.uuid5(NODE_NAMESPACE, name))
    NAMES[found] = name
    return found


def node_uuid(label: str) -> str:
    """Return the uuid of a node."""
    found = str(uuid.uuid5(NODE_NAMESPACE, "/".join(PLACES[label])))
    NAMES[found] = label
    return found


def ask(name: str, **body: Any) -> ClaimRequest:
    """Build the request for a claim, whose name begins with its workload's.

    One CPU, one pinned CPU, one device of each kind unless `body` differs.
    """
    resources = {"VCPU": 1, "PCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1, "CUSTOM_FPGA": 1}
    default = {"resources": resources, "pci_requests": [{"alias": "nic"}]}
    body = {
        "uuid": uuid_of(name),
        "workload": {"uuid": uuid_of(name.split()[0])},
        **default,
        **body,
    }
    return parse_claim_request(body, lambda: uuid_of(f"move of {name.split()[0]}"))


def ask_move(name: str, source: str, **body: Any) -> ClaimRequest:
    """Build the request for the destination of a move."""
    migration = {"type": "migration", "source_claim": uuid_of(source)}
    return ask(name, migration=migration, **body)


FPGA = {"resources": {"CUSTOM_FPGA": 1}, "pci_requests": None}
"""The part of a body for a claim that no column of usage shows."""


@dataclass
class Scene:
    """The rows of a store, by label.

    Attributes:
        agents: host -> key of its agent.
        cut: time between what happened long ago and what happened since.
        call_id: of a call of alpha that waits for its agent.
    """

    store: Store
    agents: dict[str, AgentKey] = field(default_factory=dict)
    cut: datetime | None = None
    call_id: int = 0

    def record(self, label: str) -> NodeRecord:
        """Return a node."""
        host, nodename = PLACES[label]
        (found,) = [n for n in self.store.load_nodes(host) if n.nodename == nodename]
        return found

    def service(self, host: str, binary: str = COMPUTE_BINARY) -> ServiceRecord:
        """Return a services row."""
        (found,) = self.store.list_services(host, binary)
        return found

    def claim(self, request: ClaimRequest, label: str) -> None:
        """Claim on a node, or move to it."""
        grant = (
            self.store.create_claim if request.migration is None else self.store.create_migration
        )
        grant(request, *PLACES[label], POLICY)

    def apply(self, *changes: NodeChange, down_time: int = DOWN_TIME) -> None:
        """Write what an audit decided; all of it is written."""
        result = self.store.apply_changes(self.agents[changes[0].host], changes, down_time)
        assert (result.conflicts, result.refused) == ((), {})


def list_guests(label: str) -> tuple[Guest, ...]:
    """Return the guests of a node: of each workload, and one that is bound to other devices."""
    number = sorted(PLACES).index(label)
    bound = GuestPins((CellAssignment(0, 1, 64 + number),), (ADDRESSES[7 - number],))
    cells = GuestPins((CellAssignment(1, 1, 64 - number),))
    listed = [("bare", bound)] + [(name, cells) for name in (*WORKLOADS, "lost")]
    return tuple(
        make_guest(
            name,
            uuid=uuid_of(name),
            vcpu_milli=1000,
            memory_mb=64,
            disk_mb=1024,
            details={"node": label},
            pins=pins,
        )
        for name, pins in listed
    )


def list_devices(label: str) -> tuple[TrackedDevice, ...]:
    """Return the devices of a node, one of which its unclaimed guest has."""
    (bare, *_) = list_guests(label)
    return tuple(
        make_device(address, parent_addr=None, numa_node=None)
        if address not in bare.pins.devices
        else make_device(
            address,
            parent_addr=None,
            numa_node=None,
            status=PciStatus.ALLOCATED,
            claim_uuid=bare.uuid,
        )
        for address in ADDRESSES
    )


def make_node(agent: AgentKey, label: str) -> NodeChange:
    """Build the creation of a node of 32 CPUs, half of them dedicated, and 64 GiB."""
    guests, devices = list_guests(label), list_devices(label)
    values = make_values(
        vcpus=16,
        pcpus=16,
        memory_mb=65536,
        local_gb=1000,
        cpu_allocation_ratio=1.0,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
        reserved={},
        overhead={},
        facts={},
        gpus=[],
        inventory={"CUSTOM_FPGA": {"total": FPGAS[label]}},
        numa_topology={"cells": [_make_cell(0), _make_cell(1)]},
    )
    columns = ledger_columns(
        values,
        (),
        {guest.uuid: guest for guest in guests},
        {device.address: device for device in devices},
    )
    return create(
        agent,
        PLACES[label][1],
        dataclasses.replace(values, **columns),
        guests,
        devices,
        node_uuid(label),
    )


def _make_cell(number: int) -> dict[str, Any]:
    first = 16 * number
    return {
        "id": number,
        "cpuset": list(range(first, first + 8)),
        "pcpuset": list(range(first + 8, first + 16)),
        "memory": 32768,
        "siblings": [[cpu] for cpu in range(first, first + 16)],
        "mempages": [],
    }


def build(store: Store) -> Scene:
    """Write all rows."""
    scene = Scene(store)
    for host in ("gamma", "alpha", "beta"):
        _start_services(scene, host)
        agent = scene.agents[host]
        labels = [label for label, place in PLACES.items() if place[0] == host]
        scene.apply(*[make_node(agent, label) for label in labels])
    _make_past(scene)
    scene.cut = store.now()
    _delete_nodes(scene)
    for label in PLACES:
        scene.apply(update(scene.record(label), boot_id="later"))
    _make_claims(scene)
    _lose_guests(scene)
    _lose_claims(scene)
    for host, agent in scene.agents.items():
        store.sync_warnings(agent, [CPU, SKEW, PASSED])
        store.sync_warnings(agent, [CPU, SKEW])
        store.raise_warning(host, CUT_OFF)
    return scene


def _start_services(scene: Scene, host: str) -> None:
    for binary in (CONDUCTOR_BINARY, COMPUTE_BINARY):
        run = make_incarnation(f"{binary} of {host}")
        key = key_of(take_service(scene.store, host, run, binary))
        scene.store.report_state(key, 1, AuditState(by_conductor=True))  # as a conductor stores it
        if binary == COMPUTE_BINARY:
            scene.agents[host] = key
        else:
            scene.store.set_service(host, binary, ServiceChange(disabled=True))


def _make_past(scene: Scene) -> None:
    """End some of everything: claims, a migration and warnings."""
    store = scene.store
    for label in ("a1", "b1", "g1"):
        scene.claim(ask(f"past {label}"), label)
        store.abort_claim(uuid_of(f"past {label}"))
    scene.claim(ask("moved a2"), "a2")
    scene.claim(ask_move("moved b2", "moved a2"), "b2")
    store.confirm_migration(uuid_of("move of moved"))
    store.abort_claim(uuid_of("moved b2"))
    for agent in scene.agents.values():
        store.sync_warnings(agent, [PAST])
        store.sync_warnings(agent, [])


def _delete_nodes(scene: Scene) -> None:
    """Delete a node of one name on two hosts; the removal of one provider is attempted."""
    for host in ("alpha", "beta"):
        agent = scene.agents[host]
        scene.apply(create(agent, "gone", node_uuid=uuid_of(f"gone {host}")))
        (record,) = [n for n in scene.store.load_nodes(host) if n.nodename == "gone"]
        scene.apply(delete(record))
    scene.store.take_provider_removals(RemovalQuery(host="beta", lease_seconds=0.0))


def _make_claims(scene: Scene) -> None:
    """Claim and move; "new" has claims without guests, "queue" is not moved."""
    for name in ("web a1", "db a1", "queue b1", "web b2", "lost a1", "lost b1", "new a1", "new b1"):
        scene.claim(ask(name), name.split()[1])
    scene.claim(ask_move("web b1", "web a1"), "b1")
    scene.claim(ask_move("db b1", "db a1"), "b1")
    for label in ("a1", "g1"):
        scene.claim(ask(f"passed {label}"), label)
        scene.store.abort_claim(uuid_of(f"passed {label}"))
    scene.store.set_service("gamma", COMPUTE_BINARY, ServiceChange(disabled=True))


def _lose_guests(scene: Scene) -> None:
    """Let audits of one name on two hosts find that a guest and its device are gone."""
    for label in ("a1", "b1"):
        record = scene.record(label)
        guest = record.guests[uuid_of("lost")]
        (address,) = record.claims[uuid_of(f"lost {label}")].devices
        missing = dataclasses.replace(guest, missing_since=record.created_at)
        removed = dataclasses.replace(record.devices[address], status=PciStatus.REMOVED)
        change = update(
            record, ItemDiff(changed=(missing,)), ItemDiff(changed=(removed,)), boot_id="lost"
        )
        scene.apply(change)


def _lose_claims(scene: Scene) -> None:
    """Leave two migrations in error, one without its destination, one without its source."""
    store = scene.store
    for name in ("stray", "astray"):
        scene.claim(ask(f"{name} a2", **FPGA), "a2")
        scene.claim(ask_move(f"{name} b2", f"{name} a2", **FPGA), "b2")
    record = scene.record("b2")
    scene.apply(
        dataclasses.replace(
            update(record), claims=(expire(record, "stray b2"),), moves=(fail(record, "stray"),)
        )
    )
    store.set_migration_status(uuid_of("move of astray"), MigrationStatus.ERROR)
    store.abort_claim(uuid_of("astray a2"))


def expire(record: NodeRecord, name: str) -> Any:
    """Return a node's claim as an audit writes it that lets it expire."""
    claim = record.claims[uuid_of(name)]
    return dataclasses.replace(claim, state=ClaimState.RELEASED, reason="expired", expires_at=None)


def fail(record: NodeRecord, workload: str) -> Any:
    """Return a workload's move as an audit writes it that finds it in error."""
    (move,) = [m for m in record.moves if m.migration.workload_uuid == uuid_of(workload)]
    failed = dataclasses.replace(move.migration, status=MigrationStatus.ERROR)
    return dataclasses.replace(move, migration=failed)
