"""A node's ratios limit each of its NUMA cells, unless the claim or the host says otherwise."""

import dataclasses

import pytest

from nodetracker.accounting.ledger.claims import evaluate_claim
from nodetracker.accounting.ledger.node_claims import topology_column
from nodetracker.model.guest import GuestPins
from nodetracker.model.numa import CellAssignment, NumaAssignment
from tests.builders import ask
from tests.unit.accounting.ledger.fakes import BASE, GUEST, POLICY, WORKLOAD, make_node

SOURCE = "c1a10000-0000-4000-8000-000000000001"


def cell(number):
    first = number * 8
    return {
        "id": number, "cpuset": list(range(first, first + 8)), "pcpuset": [], "memory": 32768,
        "siblings": [], "mempages": [],
    }  # fmt: skip


VALUES = dataclasses.replace(
    BASE,
    vcpus=16,
    pcpus=0,
    memory_mb=65536,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.0,
    reserved={},
    overhead={},
    numa_topology={"cells": [cell(0), cell(1)]},
)


def on(number, memory_mb, vcpus=0):
    return NumaAssignment((CellAssignment(number, vcpus, memory_mb),))


def node_with(first=(0, 0), second=(0, 0), own=None, guest=None, **column):
    """Build a node whose cells are used by other claims, each by (MiB, CPUs).

    Args:
        own: assignment of the claim `SOURCE` of the request's workload.
        column: further keys of ``numa_topology``.
    """
    assignments = {"other-0": on(0, *first), "other-1": on(1, *second)}
    assignments |= {} if own is None else {SOURCE: own}
    topology = topology_column(VALUES.numa_topology, assignments.values()) | column
    node = make_node(guest=guest)
    values = dataclasses.replace(VALUES, numa_topology=topology)
    return dataclasses.replace(node, values=values, claim_assignments=assignments)


def evaluate(node, vcpus=2, memory_mb=4096, nodes=1, **body):
    request = ask(WORKLOAD, VCPU=vcpus, MEMORY_MB=memory_mb, numa={"nodes": nodes}, **body)
    return evaluate_claim(request, node, POLICY)


def test_ordinary_memory_of_a_cell_is_not_sold_twice():
    full = node_with(first=(32768, 8), second=(30000, 8))
    assert evaluate(full, memory_mb=2768).numa == on(1, 2768, 2)
    refused = evaluate(full, memory_mb=2769)
    assert [str(check) for check in refused.checks] == ["numa"]
    assert refused.numa_reasons == (
        "guest cell 0 on host cell 0: free memory 0 (32,768 MiB x 1) < requested 2,769 MiB",
        "guest cell 0 on host cell 1: free memory 2,768 MiB (32,768 MiB x 1) < requested 2,769 MiB",
    )


def test_shared_cpus_of_a_cell_are_sold_up_to_the_node_s_ratio():
    busy = node_with(first=(0, 31), second=(0, 30))
    assert evaluate(busy, vcpus=2).numa == on(1, 4096, 2)
    assert evaluate(busy, vcpus=3).numa_reasons == (
        "guest cell 0 on host cell 0: free shared CPUs 1 (8 x 4) < requested 3",
        "guest cell 0 on host cell 1: free shared CPUs 2 (8 x 4) < requested 3",
    )


def test_a_cell_above_its_limit_keeps_what_it_holds_and_gets_no_more():
    above = node_with(first=(40960, 8))
    assert evaluate(above).numa == on(1, 4096, 2)
    refused = evaluate(above, memory_mb=8192, nodes=2)
    assert refused.numa is None
    assert refused.numa_reasons[0] == (
        "guest cells 0-1 on host cell 0: free memory -8 GiB (32 GiB x 1) < requested 4 GiB"
    )


LIMITS = [
    pytest.param({}, False, id="the node's"),
    pytest.param({"limits": {}}, False, id="the node's, with an empty object"),
    pytest.param({"limits": {"MEMORY_MB": None}}, False, id="of the node lifted"),
    pytest.param({"limits": {"numa": None}}, True, id="lifted"),
    pytest.param({"limits": {"numa": {"ram_allocation_ratio": 1.5}}}, True, id="replaced"),
    pytest.param({"limits": {"numa": {"ram_allocation_ratio": 1.1}}}, False, id="not far enough"),
    pytest.param({"limits": {"numa": {"cpu_allocation_ratio": 4.0}}}, True, id="of CPUs alone"),
]


@pytest.mark.parametrize(("body", "fits"), LIMITS)
def test_limits_of_the_claim_replace_those_of_the_cells(body, fits):
    full = node_with(first=(32768, 8), second=(32768, 8))
    assert (evaluate(full, **body).numa is not None) is fits


@pytest.mark.parametrize(("column", "fits"), [({}, False), ({"is_limited": False}, True)])
def test_a_host_may_leave_its_cells_unlimited(column, fits):
    full = node_with(first=(32768, 8), second=(32768, 8), **column)
    assert (evaluate(full).numa is not None) is fits
    assert evaluate(full, memory_mb=32769).numa is None


def test_usage_keeps_the_host_s_setting():
    column = VALUES.numa_topology | {"is_limited": False}
    assert topology_column(column, [on(0, 1024)])["is_limited"] is False


@pytest.mark.parametrize("kind", ["resize", "rebuild"])
@pytest.mark.parametrize(
    ("vcpus", "memory_mb", "fits"),
    [
        pytest.param(2, 4096, True, id="as much"),
        pytest.param(1, 2048, True, id="less"),
        pytest.param(2, 4097, False, id="more memory"),
        pytest.param(3, 4096, False, id="more CPUs"),
    ],
)
def test_a_guest_on_full_cells_gets_on_its_node_no_more_than_it_has(kind, vcpus, memory_mb, fits):
    full = node_with((36864, 40), (32768, 32), own=on(0, 4096, 2))
    found = evaluate(full, vcpus, memory_mb, migration={"type": kind, "source_claim": SOURCE})
    assert found.numa == (on(0, memory_mb, vcpus) if fits else None)


def test_another_claim_of_a_workload_is_limited_as_any():
    full = node_with((36864, 8), (32768, 8), own=on(0, 4096, 2))
    assert evaluate(full).numa is None


def test_a_claim_for_a_guest_gets_what_the_guest_has_of_a_full_cell():
    guest = dataclasses.replace(
        GUEST, memory_mb=4096, pins=GuestPins((CellAssignment(1, 2, 4096),))
    )
    node = node_with((36864, 8), (36864, 8), guest=guest)
    node = dataclasses.replace(node, guest_assignments={guest.uuid: on(1, 4096, 2)})
    assert evaluate(node).numa == on(1, 4096, 2)
    assert evaluate(node, memory_mb=4097).numa is None
