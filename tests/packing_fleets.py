"""Small random fleets with cells, dedicated CPUs, pages and devices, and requests for them."""

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from nodetracker.accounting.ledger.claims import grant_shared
from nodetracker.accounting.ledger.packing import kind_of
from nodetracker.accounting.ledger.transaction import SharedNode, share_node
from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import Alias, AliasSpec, TrackedDevice
from nodetracker.ports import AdmissionPolicy
from tests.builders import (
    NOW,
    admission_values,
    ask,
    availability_of,
    make_device,
    make_empty_values,
    make_service,
)

ALIASES = {"nic": Alias("nic", (AliasSpec("8086", "154c"),))}
POLICY = AdmissionPolicy(service_down_time=3600, claim_timeout=600, aliases=ALIASES)
PAGE_MB = 2
SERVICE = availability_of(make_service())


def draw_cell(source: random.Random, number: int) -> dict[str, Any]:
    """Draw a cell of 2 to 4 shared CPUs, up to 2 dedicated ones, 1 to 4 GiB and some pages."""
    first = number * 6
    shared, dedicated = source.randint(2, 4), source.choice([0, 0, 1, 2])
    cpus = list(range(first, first + shared + dedicated))
    memory, pages = 1024 * source.randint(1, 4), source.choice([0, 0, 256])
    return {
        "id": number,
        "cpuset": cpus[:shared],
        "pcpuset": cpus[shared:],
        "memory": memory,
        "cpu_usage": 0,
        "memory_usage": 0,
        "pinned_cpus": [],
        "siblings": [[cpu] for cpu in cpus],
        "mempages": [
            {"size_kb": 4, "total": (memory - pages * PAGE_MB) * 256, "used": 0, "reserved": 0},
            *([{"size_kb": 2048, "total": pages, "used": 0, "reserved": 0}] if pages else []),
        ],
        "socket": number,
        "distances": {},
        "networks": [],
    }


def draw_node(source: random.Random) -> tuple[NodeValues, tuple[TrackedDevice, ...]]:
    """Draw a node of one or two cells with up to two virtual functions at them."""
    cells = [draw_cell(source, number) for number in range(source.randint(1, 2))]
    devices = tuple(
        make_device(
            f"0000:81:00.{number + 1}", numa_node=source.randrange(len(cells)), parent_addr=None
        )
        for number in range(source.choice([0, 0, 1, 2]))
    )
    values = make_empty_values(
        vcpus=sum(len(cell["cpuset"]) for cell in cells),
        pcpus=sum(len(cell["pcpuset"]) for cell in cells),
        memory_mb=sum(cell["memory"] for cell in cells),
        local_gb=source.choice([20, 40]),
        numa_topology={"cells": cells},
        **pci_columns(devices),
    )
    return values, devices


def make_shared_node(
    number: int, values: NodeValues | None = None, devices: Sequence[TrackedDevice] = ()
) -> SharedNode:
    """Build a node of a host of its own without guests, of 8 CPUs and 8 GiB unless told."""
    values = make_empty_values() if values is None else values
    known = {device.address: device for device in devices}
    return share_node(
        LedgerNode(number, f"h{number}", "n", NOW, SERVICE, admission_values(values), devices=known)
    )


def draw_fleet(
    seed: int, max_nodes: int, max_guests: int
) -> tuple[list[SharedNode], list[ClaimRequest]]:
    """Draw at least two nodes without guests, and at least two requests."""
    source = random.Random(seed)
    count = source.randint(2, max_nodes)
    nodes = [make_shared_node(number, *draw_node(source)) for number in range(count)]
    return nodes, [draw_request(source, number) for number in range(source.randint(2, max_guests))]


def draw_request(source: random.Random, number: int) -> ClaimRequest:
    """Draw a request: plain, on cells, pinned, on huge pages, with a device."""
    uuid = str(UUID(int=number + 1, version=4))
    memory = 256 * source.randint(1, 8)
    body: dict[str, Any] = {"VCPU": source.randint(1, 3), "MEMORY_MB": memory}
    kind = source.choice(["plain", "plain", "cells", "pinned", "pages"])
    if kind == "cells":
        body |= {"VCPU": 2, "numa": {"nodes": source.randint(1, 2)}}
    elif kind == "pinned":
        del body["VCPU"]
        body |= {"PCPU": source.randint(1, 2)}
    elif kind == "pages":
        body |= {"MEMORY_MB": 2 * memory // 8, "numa": {"page_size": "2MB"}}
    if source.random() < 0.2:
        body["pci_requests"] = [{"alias": "nic"}]
    return ask(
        uuid, claim=str(UUID(int=1000 + number, version=4)), DISK_GB=source.randint(0, 9), **body
    )


class TooManyError(Exception):
    """The search takes too long."""


def fits_by_force(
    requests: Sequence[ClaimRequest], nodes: Sequence[SharedNode], steps: int
) -> bool:
    """Return whether all requests can be granted in this order, each on any node.

    Nodes on which the same kinds were granted in the same order are tried once if they were equal.

    Raises:
        TooManyError: after so many grants that were tried.
    """
    left = steps
    failed = set()

    def search(at: int, state: tuple[tuple[SharedNode, tuple[int, ...]], ...]) -> bool:
        nonlocal left
        if at == len(requests):
            return True
        key = (at, tuple(granted for _, granted in state))
        if key in failed:
            return False
        for index, (shared, granted) in enumerate(state):
            left -= 1
            if left < 0:
                raise TooManyError
            try:
                _, after = grant_shared(requests[at], shared, POLICY)
            except ClaimRefusedError:
                continue
            changed = (after, (*granted, kinds[at]))
            if search(at + 1, (*state[:index], changed, *state[index + 1 :])):
                return True
        failed.add(key)
        return False

    numbers: dict[Any, int] = {}
    kinds = [numbers.setdefault(kind_of(request), len(numbers)) for request in requests]
    return search(0, tuple((shared, ()) for shared in nodes))
