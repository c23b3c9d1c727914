"""Memory outside huge pages limits claims without a page size, beside the memory as a whole."""

import dataclasses

import pytest

from nodetracker.accounting.ledger.admission import ordinary_capacity
from nodetracker.accounting.ledger.claims import evaluate_claim, list_left
from nodetracker.accounting.ledger.node_claims import ledger_columns
from nodetracker.accounting.ledger.warnings import find_capacity_warnings
from nodetracker.accounting.numa.cells import measure_huge_pages
from nodetracker.model.amounts import ORDINARY
from nodetracker.model.candidate import ResourceLeft
from nodetracker.model.guest import GuestPins, LoosePages
from nodetracker.model.numa import CellAssignment, NumaAssignment
from tests.builders import ask
from tests.refusals import list_short
from tests.unit.accounting.ledger.fakes import BASE, GUEST, POLICY, WORKLOAD, make_claim, make_node

GIB = 1024
PAGES = NumaAssignment((CellAssignment(0, 2, 8 * GIB, 2048, 4096),))


def pool(size_kb, total):
    return {"size_kb": size_kb, "total": total, "used": 0, "reserved": 0}


def cell(*pools):
    return {"id": 0, "cpuset": list(range(16)), "pcpuset": [], "memory": 64 * GIB, "siblings": [],
            "mempages": list(pools)}  # fmt: skip


VALUES = dataclasses.replace(
    BASE,
    vcpus=16,
    memory_mb=64 * GIB,
    cpu_allocation_ratio=4.0,
    reserved={"memory_mb": GIB},
    overhead={},
    numa_topology={"cells": [cell(pool(4, 16 * GIB * 256), pool(2048, 24 * GIB))]},
)
"""64 GiB, of which 48 GiB are huge pages and 1 GiB is reserved: 15 GiB are for others."""


def node_with(claims=(), guest=None, own=(), **columns):
    """Build a node with claims, and a guest of the request's workload or another one."""
    guests = {} if guest is None else {guest.uuid: guest}
    values = dataclasses.replace(VALUES, **columns)
    values = dataclasses.replace(values, **ledger_columns(values, claims, guests, {}))
    node = make_node(guest=guest if guest is not None and guest.uuid == WORKLOAD else None)
    placed = {claim.uuid: claim.numa for claim in claims if claim.numa is not None}
    return dataclasses.replace(
        node, values=values, claim_assignments=placed, own_claims=frozenset(own)
    )


def evaluate(node, memory_mb, **body):
    request = make_request(memory_mb, **body)
    return evaluate_claim(request, node, POLICY)


def make_request(memory_mb, **body):
    return ask(WORKLOAD, VCPU=2, MEMORY_MB=memory_mb, **body)


def other(**changes):
    workload = dataclasses.replace(make_claim().workload, uuid="another")
    amounts = dataclasses.replace(make_claim().amounts, memory_mb=changes.pop("memory_mb"))
    return make_claim(workload=workload, amounts=amounts, **changes)


def test_a_claim_without_a_page_size_gets_no_huge_pages():
    node = node_with()
    assert evaluate(node, 15 * GIB).refusals == ()
    refused = evaluate(node, 15 * GIB + 1)
    assert list_short(refused) == {ORDINARY: (15 * GIB, 15 * GIB + 1)}
    assert [str(check) for check in refused.checks] == ["ordinary_ram"]


def test_a_claim_with_a_page_size_gets_nothing_else():
    full = node_with([other(memory_mb=15 * GIB)])
    assert evaluate(full, 1).checks == ("ordinary_ram",)
    paged = {"numa": {"nodes": 1, "page_size": "large"}}
    assert evaluate(full, 48 * GIB, **paged).refusals == ()
    assert evaluate(full, 48 * GIB + 2, **paged).checks == ("ram", "numa")


def test_pages_that_a_claim_has_leave_the_rest_as_it_was():
    node = node_with([other(memory_mb=8 * GIB, numa=PAGES)])
    assert evaluate(node, 15 * GIB).refusals == ()
    assert evaluate(node, 15 * GIB + 1).checks == ("ordinary_ram",)


def test_small_pages_are_ordinary_memory():
    small = NumaAssignment((CellAssignment(0, 2, 8 * GIB, 4, 8 * GIB * 256),))
    node = node_with([other(memory_mb=8 * GIB, numa=small)])
    assert evaluate(node, 7 * GIB).refusals == ()
    assert evaluate(node, 7 * GIB + 1, numa={"nodes": 1, "page_size": "small"}).checks[0] == (
        "ordinary_ram"
    )


@pytest.mark.parametrize(
    ("pins", "ordinary_gib"),
    [
        pytest.param(GuestPins(), 8, id="none"),
        pytest.param(GuestPins(PAGES.cells), 0, id="of a cell"),
        pytest.param(GuestPins(pages=(LoosePages(2048, 4096),)), 0, id="of any cell"),
        pytest.param(GuestPins(pages=(LoosePages(2048, 2048, (0, 1)),)), 4, id="of a part"),
    ],
)
@pytest.mark.parametrize("is_claimed", [False, True])
def test_huge_pages_of_guests_are_not_charged_outside_of_them(pins, ordinary_gib, is_claimed):
    guest = dataclasses.replace(GUEST, uuid="another", memory_mb=8 * GIB, pins=pins)
    claims = [other(memory_mb=8 * GIB)] if is_claimed else []
    if is_claimed:
        guest = dataclasses.replace(guest, claim_uuid=claims[0].uuid)
    node = node_with(claims, guest)
    most = (15 - ordinary_gib) * GIB
    assert evaluate(node, most).refusals == ()
    assert evaluate(node, most + 1).checks == ("ordinary_ram",)


def test_pages_that_programs_of_the_host_use_are_nobody_s_memory():
    topology = VALUES.numa_topology["cells"][0]
    withheld = [*topology["mempages"][:1], topology["mempages"][1] | {"withheld": 512}]
    column = {"cells": [topology | {"mempages": withheld}]}
    node = node_with(numa_topology=column)
    assert node.values.numa_topology["cells"][0]["mempages"][1]["used"] == 512
    assert measure_huge_pages(node.values.numa_topology) == (48 * GIB, 0)
    assert evaluate(node, 15 * GIB + 1).checks == ("ordinary_ram",)


def test_a_claim_for_pages_does_not_expose_another_one_that_they_covered():
    pins = GuestPins(pages=(LoosePages(2048, 1536),))
    guest = dataclasses.replace(GUEST, memory_mb=3 * GIB, pins=pins, claim_uuid="own")
    own = make_claim("own", amounts=dataclasses.replace(make_claim().amounts, memory_mb=3 * GIB))
    paged = {"numa": {"nodes": 1, "page_size": "large"}}
    for others_mb, checks in ((14 * GIB, ()), (14 * GIB + 1, ("ordinary_ram",))):
        node = node_with([own, other(memory_mb=others_mb)], guest)
        node = dataclasses.replace(node, claimed=own.amounts)
        assert evaluate(node, GIB, **paged).checks == checks


def test_a_claim_for_a_guest_on_huge_pages_need_not_name_them():
    pins = GuestPins(pages=(LoosePages(2048, 4096),))
    guest = dataclasses.replace(GUEST, memory_mb=8 * GIB, pins=pins)
    node = node_with([other(memory_mb=15 * GIB)], guest)
    assert evaluate(node, 8 * GIB).refusals == ()
    assert evaluate(node, 8 * GIB + 1).checks == ("ordinary_ram",)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({}, 15 * GIB, id="the node's"),
        pytest.param({"MEMORY_MB": 66 * GIB}, 17 * GIB, id="raised"),
        pytest.param({"MEMORY_MB": 60 * GIB}, 11 * GIB, id="lowered"),
        pytest.param({"MEMORY_MB": None}, 640 * GIB, id="lifted"),
    ],
)
def test_a_limit_of_the_request_moves_both(limits, most):
    assert evaluate(node_with(), most, limits=limits).refusals == ()
    if limits != {"MEMORY_MB": None}:
        assert evaluate(node_with(), most + 1, limits=limits).checks == ("ordinary_ram",)


def test_the_ratio_multiplies_what_is_neither_pages_nor_reserved():
    node = node_with(ram_allocation_ratio=1.5)
    assert evaluate(node, 22 * GIB + 512).refusals == ()
    assert evaluate(node, 22 * GIB + 513).checks == ("ordinary_ram",)


def test_a_node_without_huge_pages_has_one_limit():
    column = {"cells": [cell(pool(4, 64 * GIB * 256), pool(2048, 0))]}
    node = node_with(numa_topology=column)
    assert ordinary_capacity(node.values) is None
    found = evaluate(node, 63 * GIB + 1)
    assert found.checks == ("ram",)
    assert ORDINARY not in {verdict.resource for verdict in found.verdicts}


def test_what_a_cell_has_left_is_not_more_than_the_node_has():
    node = node_with([other(memory_mb=12 * GIB)])
    request = make_request(2 * GIB, numa={"nodes": 1})
    left = list_left(request, node, evaluate_claim(request, node, POLICY))
    assert left == (ResourceLeft("cell 0", 64, 3 * GIB),)


def test_a_node_beyond_the_limit_keeps_its_claims_and_has_a_warning():
    node = node_with([other(memory_mb=20 * GIB)])
    (warning,) = find_capacity_warnings("n", node.values, [])
    assert (warning.kind.value, warning.item) == ("node_overcommitted", ORDINARY)
    assert warning.message == (
        "MEMORY_MB outside huge pages is overcommitted: 21 GiB are used, 16 GiB are allowed "
        "by capacity and ratio"
    )
    assert find_capacity_warnings("n", node_with([other(memory_mb=15 * GIB)]).values, []) == []
