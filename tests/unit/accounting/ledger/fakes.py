"""Locked rows for tests of ledger decisions, and the columns that follow from a node's contents."""

import dataclasses

from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.ledger.transaction import LockedNode
from nodetracker.accounting.numa.cells import list_guest_assignments
from nodetracker.accounting.pci.state import assign_to_claims, assign_to_guests
from nodetracker.accounting.usage import charge_of_claims
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, MigrationStatus, MigrationType, Workload
from nodetracker.model.guest import GuestPins
from nodetracker.model.node import NodeValues
from nodetracker.model.numa import CellAssignment, NumaAssignment
from nodetracker.model.pci import PciDevice, PciStatus, track_device
from nodetracker.model.service import ServiceAvailability
from nodetracker.model.settings import AdmissionPolicy
from tests import builders
from tests.builders import NOW, admission_values, later, make_guest

POLICY = AdmissionPolicy(service_down_time=60, claim_timeout=600)
GUEST = make_guest(1, vcpu_milli=1000, memory_mb=512, disk_mb=0)
WORKLOAD = GUEST.uuid
PINNED = NumaAssignment((CellAssignment(0, 0, 1024, pins={0: 4}),))
ADDRESS = "0000:81:10.0"
VF = track_device(PciDevice(ADDRESS, "8086", "154c"), tags={}, status=PciStatus.AVAILABLE)
GPU_GUEST = dataclasses.replace(GUEST, pins=GuestPins((), ("0000:c1:00.0",)))
CELL_GUEST = dataclasses.replace(GUEST, pins=GuestPins((CellAssignment(0, 0, 512, pins={0: 5}),)))
BASE = NodeValues(
    vcpus=8,
    pcpus=2,
    memory_mb=8192,
    local_gb=100,
    cpu_allocation_ratio=1.0,
    ram_allocation_ratio=1.0,
    disk_allocation_ratio=1.0,
    reserved={"vcpus": 1, "memory_mb": 512},
    overhead={"memory_mb": 64},
    inventory={"CUSTOM_FPGA": {"total": 2}},
    gpus=[{"address": "0000:c1:00.0"}],
    numa_topology={
        "cells": [
            {
                "id": 0,
                "cpuset": [0, 1, 2, 3],
                "pcpuset": [4, 5],
                "memory": 8192,
                "siblings": [],
                "mempages": [{"size_kb": 4, "total": 2097152, "reserved": 0}],
            }
        ]
    },
)


def columns_of(claims=(), guests=(), devices=None):
    """Build the columns of a node from its claims, guests and devices."""
    return ledger_columns(BASE, claims, {guest.uuid: guest for guest in guests}, devices or {})


def make_node(claims=(), guest=None, node_id=1, **changes):
    """Build a locked node with some claims, `GUEST`'s workload and one VF."""
    guests = [] if guest is None else [guest]
    devices = assign_to_claims({ADDRESS: VF}, claims, {})
    devices = assign_to_guests(devices, guests, [claim.uuid for claim in claims])
    node = LockedNode(
        id=node_id,
        host=f"host-{node_id}",
        nodename=f"node-{node_id}",
        values=admission_values(dataclasses.replace(BASE, **columns_of(claims, guests, devices))),
        service=ServiceAvailability(NOW, NOW, False, None, False, False),
        guest=guest,
        now=later(10),
        claimed=charge_of_claims(claims, BASE.overhead["memory_mb"]),
        claim_assignments={c.uuid: c.numa for c in claims if c.numa is not None},
        guest_assignments=list_guest_assignments(guests),
        devices=devices,
    )
    return dataclasses.replace(node, **changes)


def make_claim(uuid="claim-1", node_id=1, **changes):
    """Build a held claim of 2 CPUs, 1 GiB and 10 GiB for `GUEST`'s workload."""
    place = {"node_id": node_id, "host": f"host-{node_id}", "nodename": f"node-{node_id}"}
    held = {"state": ClaimState.HELD, "expires_at": later(600), "request_hash": "hash"}
    amounts = Amounts(vcpu_milli=2000, memory_mb=1024, disk_mb=10240)
    return builders.make_claim(
        uuid, **(place | held | {"workload": Workload(WORKLOAD), "amounts": amounts} | changes)
    )


def make_migration(status=MigrationStatus.MIGRATING, kind=MigrationType.MIGRATION):
    """Build a migration from claim-1 on node 1 to claim-2 on node 2."""
    return builders.make_migration(workload_uuid=WORKLOAD, migration_type=kind, status=status)


def check_columns(write, claims=(), guests=()):
    """Check that a node's write agrees with the node's contents afterwards."""
    devices = {ADDRESS: VF} | {device.address: device for device in write.devices.changed}
    wanted = columns_of(claims, guests, devices)
    assert write.columns.items() <= wanted.items()
    return set(write.columns)
