"""Random fleets and requests, and what must be true of the candidates that a store finds."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from nodetracker.accounting.usage import charge_of_guest, usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import CandidateNode, CandidateOrder
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import Guest, GuestPins, WorkloadKind
from nodetracker.model.node import NodeValues
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.settings import Multipliers
from nodetracker.ports import AdmissionPolicy, CandidatePolicy, Store
from tests.builders import SINCE, ask, create, make_guest, make_values, register
from tests.candidate_oracle import list_expected

DOWN_TIME = 3600
ADMISSION_POLICY = AdmissionPolicy(service_down_time=DOWN_TIME, claim_timeout=600)
ALL = 1000

WORKLOADS = [str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in "abc"]
GPU = "0000:c1:00.0"
ENDED = "ended"
"""A host whose agent has ended in order."""

small = st.integers(0, 6)
ratios = st.sampled_from([0.5, 0.7, 1.0, 1.1, 4.0])
multipliers = st.sampled_from([1.0, 1.0, -1.0, 0.0, 0.3, 2.5])
rare = st.sampled_from([False] * 5 + [True])


pools = st.fixed_dictionaries(
    {"size_kb": st.just(1024), "total": small, "used": st.integers(0, 2), "reserved": st.just(0)}
)
"""Huge pages of 1 MiB."""
cells = st.fixed_dictionaries(
    {
        "id": st.just(0), "cpuset": st.just([0]), "pcpuset": st.just([]), "memory": small,
        "siblings": st.just([]), "mempages": st.lists(pools, max_size=1),
    }
)  # fmt: skip
topologies = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"cells": st.lists(cells, min_size=1, max_size=1)},
        optional={"loose_huge_mb": st.integers(1, 3)},
    ),
)


@dataclass(frozen=True, slots=True)
class Host:
    """A host to create: its nodes, and what happens to its service."""

    nodes: tuple[tuple[NodeValues, tuple[Guest, ...]], ...]
    change: ServiceChange | str | None


def _unknown(name: str) -> Mapping[str, FactEntry]:
    return {name: FactEntry(FactState.UNKNOWN, "test", SINCE, "away")}


FACTS: list[Mapping[str, FactEntry]] = [
    *({} for _ in range(9)),
    *map(_unknown, ("guests", "cpu", "memory", "storage", "gpus", "numa", "pci", "system")),
    {"guests": FactEntry(FactState.HELD, "test", SINCE, "away", (WorkloadKind.CONTAINER,))},
]


@st.composite
def guests(draw: st.DrawFn) -> Guest:
    """Draw a guest without a claim, sometimes one that is bound to the GPU."""
    return make_guest(
        "g",
        uuid=draw(st.sampled_from(WORKLOADS)),
        vcpu_milli=draw(small) * 500,
        memory_mb=draw(small),
        disk_mb=draw(small) * 512,
        pins=GuestPins((), (GPU,) if draw(rare) else ()),
    )


@st.composite
def nodes(draw: st.DrawFn) -> tuple[NodeValues, tuple[Guest, ...]]:
    """Draw a node whose usage is that of its guests and of something else."""
    own = tuple(draw(st.lists(guests(), max_size=2, unique_by=lambda guest: guest.uuid)))
    overhead_mb = draw(st.integers(0, 2))
    charge = draw(st.builds(Amounts, st.integers(0, 4000), small, small, st.integers(0, 4096)))
    charge = charge + sum((charge_of_guest(guest, overhead_mb) for guest in own), Amounts())
    bound = sorted(guest.uuid for guest in own if guest.pins.devices)
    has_gpu, total, local_gb = draw(st.booleans()), draw(small), draw(small)
    inventory = draw(
        st.dictionaries(
            st.sampled_from(["CUSTOM_X", "CUSTOM_Y"]),
            st.fixed_dictionaries(
                {"total": small}, optional={"reserved": small, "allocation_ratio": ratios}
            ),
        )
    )
    if has_gpu:
        inventory["PGPU"] = {"total": 1, "reserved": int(bool(bound)), "allocation_ratio": 1.0}
    reserved = {"vcpus": draw(st.integers(0, 1)), "memory_mb": draw(small), "disk_mb": draw(small)}
    values = make_values(
        vcpus=draw(small),
        pcpus=draw(small),
        memory_mb=total,
        local_gb=local_gb,
        cpu_allocation_ratio=draw(ratios),
        ram_allocation_ratio=draw(ratios),
        disk_allocation_ratio=draw(ratios),
        reserved=reserved,
        overhead={"memory_mb": overhead_mb},
        inventory=inventory,
        gpus=[{"address": GPU, "resource_class": "PGPU", "guests": bound}] if has_gpu else [],
        traits=sorted(draw(st.sets(st.sampled_from(["T", "TX", "CUSTOM_T"])))),
        facts=draw(st.sampled_from(FACTS)),
        tracks_resources=not draw(rare),
        numa_topology=draw(topologies),
        pci_stats=[],
        **usage_columns(charge, reserved, total, local_gb),
    )
    return values, own


CHANGES = [
    *(None for _ in range(6)),
    ServiceChange(disabled=True),
    ServiceChange(maintenance=True),
    ServiceChange(forced_down=True),
    ENDED,
]

hosts = st.builds(
    lambda nodes, change: Host(tuple(nodes), change),
    st.lists(nodes(), min_size=1, max_size=2),
    st.sampled_from(CHANGES),
)
fleets = st.lists(hosts, min_size=1, max_size=4)


@st.composite
def requests(draw: st.DrawFn) -> ClaimRequest:
    """Draw a request of any kind of resource, with limits of its own or without."""
    amounts = st.integers(0, 4) | st.sampled_from([6, 7, 30, 2**31 - 1])
    names = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_X", "PGPU"]
    resources = draw(st.dictionaries(st.sampled_from(names), amounts, max_size=4))
    limited = ["VCPU", "MEMORY_MB", "DISK_GB", *resources]
    limits = draw(st.dictionaries(st.sampled_from(limited), st.none() | small, max_size=2))
    further: dict[str, Any] = {}
    if draw(rare):
        further["host"] = draw(st.sampled_from(["h0", "h1", "ghost"]))
    if draw(rare):
        further["nodename"] = draw(st.sampled_from(["n0", "n1", "ghost"]))
    if draw(rare) and (resources.get("VCPU") or resources.get("PCPU")):
        further["numa"] = {"nodes": 1}
    if draw(rare):
        further["pci_requests"] = [{"alias": "nic"}]
    return ask(
        draw(st.sampled_from([*WORKLOADS, str(uuid.UUID(int=7, version=4))])),
        claim=str(uuid.UUID(int=draw(st.integers(0, 2**128 - 1)), version=4)),
        kind=draw(st.sampled_from(list(WorkloadKind))).value,
        limits=limits,
        required_traits=draw(st.sampled_from([[], [], ["T"], ["T", "CUSTOM_T"], ["TX"]])),
        **resources,
        **further,
    )


EXAMPLES: dict[str, st.SearchStrategy[Any]] = {
    "fleet": fleets,
    "wanted": st.lists(requests(), min_size=1, max_size=4),
    "weights": st.builds(Multipliers, multipliers, multipliers, multipliers),
    "page_size": st.integers(1, 3),
}


def make_fleet(store: Store, fleet: Iterable[Host]) -> None:
    """Create the hosts h0, h1, … with the nodes n0, n1, … in an empty store."""
    for number, host in enumerate(fleet):
        name = f"h{number}"
        agent = register(store, name, f"agent-of-{name}")
        store.report_state(agent, 1, AuditState())
        changes = [
            create(agent, f"n{index}", values, own)
            for index, (values, own) in enumerate(host.nodes)
        ]
        store.apply_changes(agent, changes, DOWN_TIME)
        if host.change == ENDED:
            store.report_state(agent, 2, AuditState(), is_last=True)
        elif isinstance(host.change, ServiceChange):
            store.set_service(name, COMPUTE_BINARY, host.change)


def check_candidates(
    store: Store,
    fleet: list[Host],
    wanted: list[ClaimRequest],
    weights: Multipliers,
    page_size: int,
) -> None:
    """Assert what is promised of candidates, for each request and both orders."""
    make_fleet(store, fleet)
    for request in wanted:
        for order in CandidateOrder:
            policy = CandidatePolicy(DOWN_TIME, weights, order)
            found = tuple(store.find_candidates(request, policy, ALL).nodes)
            assert found == list_expected(store, request, policy)
            assert tuple(store.find_candidates(request, policy, ALL).nodes) == found
            pages = _read_pages(store, request, policy, page_size)
            if order is CandidateOrder.NAMED:
                assert pages == found
            else:  # each part has a scale of its own
                assert sorted(node.id for node in pages) == sorted(node.id for node in found)
        granting = _list_granting(store, request)
        places = {(node.host, node.nodename) for node in found}
        assert granting <= places
        if _is_plain(request) and not _has_guest(fleet, request.workload.uuid):
            assert granting == places


def _read_pages(
    store: Store, request: ClaimRequest, policy: CandidatePolicy, size: int
) -> tuple[CandidateNode, ...]:
    page = store.find_candidates(request, policy, size)
    seen = list(page.nodes)
    while page.next is not None:
        assert len(page.nodes) == size
        page = store.find_candidates(request, policy, size, page.next)
        seen += page.nodes
    return tuple(seen)


def _list_granting(store: Store, request: ClaimRequest) -> set[tuple[str, str]]:
    """Return the nodes on which the ledger would grant a request."""
    return {
        (record.host, record.nodename)
        for record in store.list_nodes()
        if request.host in (None, record.host)
        and request.nodename in (None, record.nodename)
        and not store.try_claim(request, record.host, record.nodename, ADMISSION_POLICY).reasons
    }


def _is_plain(request: ClaimRequest) -> bool:
    """Return whether the numbers of a row decide about a request.

    Those of an instance without memory of its own do not: whether the driver
    adds some, and the node's memory is known, is left to the ledger.
    """
    amounts = request.amounts
    has_memory = amounts.memory_mb > 0 or request.workload.kind is WorkloadKind.CONTAINER
    return has_memory and not (request.numa or request.pci_requests or amounts.resources)


def _has_guest(fleet: Iterable[Host], workload: str) -> bool:
    return any(guest.uuid == workload for host in fleet for _, own in host.nodes for guest in own)
