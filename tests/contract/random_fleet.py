"""Random fleets and requests, in which every check excludes nodes."""

import dataclasses
import random
import uuid
from typing import Any

from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.change import NodeChange
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import ClaimRefusedError, RequestError
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import Guest, GuestPins, WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import CellAssignment
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType, PciStatus
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.ports import AdmissionPolicy, AgentKey, Store
from tests.builders import (
    SINCE,
    create,
    key_of,
    make_cell,
    make_device,
    make_guest,
    make_incarnation,
    make_values,
    take_service,
)

POLICY = AdmissionPolicy(
    service_down_time=3600,
    claim_timeout=600,
    aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)},
)
HOSTS = (
    "up", "up-too", "disabled", "maintenance", "forced-down", "ended", "closed", "spare",
    "no-service",
)  # fmt: skip
_CHANGES = {
    "disabled": ServiceChange(disabled=True, disabled_reason="disk"),
    "maintenance": ServiceChange(maintenance=True),
    "forced-down": ServiceChange(forced_down=True),
    "closed": ServiceChange(disabled=True, maintenance=True, forced_down=True, spare=True),
    "spare": ServiceChange(spare=True),
}
_FACTS = ("cpu", "memory", "storage", "gpus", "numa", "pci", "guests", "system")
_TRAITS = ("HW_A", "HW_AB", "HWXAB")
_ADDRESSES = ("0000:81:00.1", "0000:81:00.2")


class RandomFleet:
    """Nodes of a store; the same seed makes the same ones."""

    def __init__(self, store: Store, seed: int, nodes: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._workloads = [str(uuid.UUID(int=number)) for number in range(1, 4)]
        agents = {host: self._take(host) for host in HOSTS}
        changes: dict[str, list[NodeChange]] = {host: [] for host in HOSTS}
        for number in range(nodes):
            host = HOSTS[number] if number < len(HOSTS) else self._random.choice(HOSTS)
            changes[host].append(self._make_node(agents[host], f"n{number}"))
        for host, created in changes.items():
            assert not store.apply_changes(agents[host], created, 3600).conflicts
        self._places = [(host, change.nodename) for host in changes for change in changes[host]]
        for _ in range(nodes):
            self._claim(self._random.choice(("up", "up-too")))
        for host, change in _CHANGES.items():
            store.set_service(host, COMPUTE_BINARY, change)
        store.report_state(agents["ended"], 2, AuditState(), is_last=True)

    def make_request(self) -> ClaimRequest:
        """Return a request that most nodes refuse, each for other reasons."""
        pick = self._random
        resources = {
            name: pick.choice((0, 1, 2, *more))
            for name, more in {
                "VCPU": (5,), "PCPU": (), "MEMORY_MB": (600, 3000), "DISK_GB": (40,),
                "CUSTOM_FPGA": (), "PGPU": (),
            }.items()
            if pick.random() < 0.4
        }  # fmt: skip
        limits = {name: pick.choice((None, 3, 4000)) for name in resources if pick.random() < 0.2}
        body: dict[str, Any] = {
            "workload": {
                "uuid": pick.choice([*self._workloads, self._make_uuid()]),
                "kind": pick.choice(("instance", "container")),
            },
            "resources": resources,
            "limits": limits,
            "required_traits": pick.sample(_TRAITS, pick.choice((0, 0, 1, 2))),
        }
        if pick.random() < 0.3:
            body["pci_requests"] = [{"alias": pick.choice(("nic", "nic", "other"))}]
        if pick.random() < 0.3 and resources.get("MEMORY_MB") and resources.get("VCPU"):
            is_even = all(amount % 2 == 0 for amount in resources.values())
            body["numa"] = {"nodes": 2 if is_even else 1}
            if pick.random() < 0.3:
                body["numa"]["page_size"] = pick.choice(("small", "large", "any"))
        if pick.random() < 0.2:
            body["host"] = pick.choice((*HOSTS, "ghost"))
        if pick.random() < 0.1:
            body["nodename"] = pick.choice(("n1", "ghost"))
        return parse_claim_request(body, self._make_uuid)

    def _make_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128)))

    def _take(self, host: str) -> AgentKey:
        binary = "another" if host == "no-service" else COMPUTE_BINARY
        record = take_service(self._store, host, make_incarnation(f"agent-{host}"), binary)
        self._store.report_state(key_of(record), 1, AuditState())
        return key_of(record)

    def _make_node(self, agent: AgentKey, nodename: str) -> NodeChange:
        guests = self._make_guests()
        owner = next((guest.uuid for guest in guests if guest.pins.devices), None)
        devices = [make_device(address, parent_addr=None) for address in _ADDRESSES]
        if owner is not None:
            taken = {"status": PciStatus.ALLOCATED, "claim_uuid": owner}
            devices[0] = dataclasses.replace(devices[0], **taken)
        devices = devices if self._random.random() < 0.7 else []
        values = self._make_values()
        by_address = {device.address: device for device in devices}
        columns = ledger_columns(values, (), {guest.uuid: guest for guest in guests}, by_address)
        values = dataclasses.replace(values, **columns)
        return create(agent, nodename, values, guests, tuple(devices))

    def _make_guests(self) -> tuple[Guest, ...]:
        pick = self._random
        return tuple(
            make_guest(
                "g",
                uuid=workload,
                kind=pick.choice(tuple(WorkloadKind)),
                vcpu_milli=pick.choice((500, 2000)),
                memory_mb=pick.choice((100, 2048)),
                disk_mb=10240,
                missing_since=pick.choice((None, None, SINCE)),
                pins=GuestPins(
                    pick.choice(
                        ((), (CellAssignment(0, 1, 64),), (CellAssignment(0, 1, 64, 2048, 32),))
                    ),
                    pick.choice(((), _ADDRESSES[:1], ("0000:c1:00.0",))),
                ),
            )
            for workload in self._workloads
            if pick.random() < 0.2
        )

    def _make_values(self) -> NodeValues:
        pick = self._random
        inventory = {
            "CUSTOM_FPGA": {"total": 2, "reserved": pick.choice((0, 1)), "allocation_ratio": 1.5}
            | pick.choice(({}, {}, {"max_unit": 1}, {"min_unit": 2}, {"step_size": 2}))
        }
        gpus = [{"address": f"0000:c{number}:00.0"} for number in (1, 2)]
        return make_values(
            vcpus=pick.choice((0, 2, 8)),
            pcpus=pick.choice((0, 2)),
            memory_mb=pick.choice((512, 8192)),
            local_gb=pick.choice((10, 100)),
            cpu_allocation_ratio=pick.choice((0.7, 1.0, 4.0)),
            ram_allocation_ratio=pick.choice((0.9, 1.0, 1.5)),
            disk_allocation_ratio=pick.choice((1.0, 2.0)),
            reserved=pick.choice(({}, {"vcpus": 1, "memory_mb": 512, "disk_mb": 1000})),
            overhead=pick.choice(({}, {"memory_mb": 100})),
            facts=self._make_facts(),
            gpus=gpus if pick.random() < 0.5 else [],
            numa_topology=self._make_topology() if pick.random() < 0.7 else {},
            inventory=inventory if pick.random() < 0.7 else {},
            traits=pick.sample(_TRAITS, pick.randrange(4)),
            tracks_resources=pick.random() < 0.9,
        )

    def _make_topology(self) -> dict[str, Any]:
        pages = self._random.choice((0, 0, 1500))  # of 2 MiB
        cells = [make_cell(0), make_cell(1)]
        for cell in cells if pages else ():
            pools = {4: (4096 - 2 * pages) * 256, 2048: pages}
            cell["mempages"] = [
                {"size_kb": size, "total": total, "used": 0, "reserved": 0}
                for size, total in pools.items()
            ]
        return {"cells": cells}

    def _make_facts(self) -> dict[str, FactEntry]:
        pick = self._random
        facts = {
            name: FactEntry(pick.choice((FactState.UNKNOWN, FactState.HELD)), "test", SINCE, "away")
            for name in _FACTS
            if pick.random() < 0.15
        }
        if "guests" not in facts and pick.random() < 0.2:
            unseen = (pick.choice(tuple(WorkloadKind)),)
            facts["guests"] = FactEntry(FactState.HELD, "test", SINCE, "away", unseen)
        return facts

    def _claim(self, host: str) -> None:
        request = self.make_request()
        mine = [place for place in self._places if place[0] == host]
        try:
            self._store.create_claim(request, *self._random.choice(mine), POLICY)
        except (ClaimRefusedError, RequestError):
            pass  # the next one may be granted
