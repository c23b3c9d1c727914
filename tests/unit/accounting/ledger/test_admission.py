from dataclasses import replace

import pytest

from nodetracker.accounting.ledger.admission import admit
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.usage import charge_of_claim, usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from tests import builders
from tests.builders import NOW
from tests.refusals import list_short

NOTHING = Amounts()
WORKLOAD = {"uuid": builders.WORKLOAD}
RESERVED = {"vcpus": 1, "memory_mb": 512, "disk_mb": 1024}
NODE = NodeValues(
    vcpus=8,
    pcpus=2,
    memory_mb=8192,
    local_gb=100,
    cpu_allocation_ratio=4.0,
    ram_allocation_ratio=1.5,
    disk_allocation_ratio=1.0,
    reserved=RESERVED,
    inventory={"CUSTOM_FPGA": {"total": 2, "reserved": 1, "allocation_ratio": 2.0}},
    traits=["T1"],
)


def used(charge):
    return replace(NODE, **usage_columns(charge, RESERVED, NODE.memory_mb, NODE.local_gb))


def ask(values, credit=NOTHING, held=None, **body):
    request = parse_claim_request({"workload": WORKLOAD} | body)
    charge = charge_of_claim(request.amounts, request.workload.kind, 0)
    return admit(request, values, charge, credit, held or {})


def reasons(values, **body):
    return ask(values, **body).reasons


EMPTY = used(Amounts())


@pytest.mark.parametrize(
    ("resource", "most"),
    [
        ("VCPU", 28),  # (8 - 1) x 4
        ("PCPU", 2),
        ("MEMORY_MB", 11520),  # (8192 - 512) x 1.5
        ("DISK_GB", 99),
        ("CUSTOM_FPGA", 2),  # (2 - 1) x 2
    ],
)
def test_a_node_admits_up_to_placement_s_capacity(resource, most):
    taken = most - 1
    charges = {"VCPU": Amounts(taken * 1000), "PCPU": Amounts(pcpus=taken)}
    charges |= {"MEMORY_MB": Amounts(memory_mb=taken), "DISK_GB": Amounts(disk_mb=taken * 1024)}
    node, held = used(charges.get(resource, NOTHING)), {"CUSTOM_FPGA": taken}
    assert ask(node, held=held, resources={resource: 1}).reasons == ()
    assert list_short(ask(node, held=held, resources={resource: 2})) == {resource: (1, 2)}


@pytest.mark.parametrize(
    ("resource", "total"),
    [("VCPU", 8), ("MEMORY_MB", 8192), ("DISK_GB", 100), ("CUSTOM_FPGA", 2)],
)
def test_no_claim_is_larger_than_the_node_unless_it_brings_a_limit(resource, total):
    fpga = {"CUSTOM_FPGA": {"total": 2, "reserved": 0, "allocation_ratio": 4.0}}
    node = replace(EMPTY, disk_allocation_ratio=2.0, inventory=fpga)
    assert reasons(node, resources={resource: total}) == ()
    ((verdict,),) = ask(node, resources={resource: total + 1}).parts
    assert (verdict.resource, verdict.is_free) == (resource, True)
    assert (verdict.largest, verdict.refused) == (total, total + 1)
    for limit in (None, total * 10):
        assert reasons(node, resources={resource: total + 1}, limits={resource: limit}) == ()


def test_the_driver_s_overhead_does_not_make_a_claim_larger_than_the_node():
    request = parse_claim_request({"workload": WORKLOAD, "resources": {"MEMORY_MB": 8192}})
    charge = charge_of_claim(request.amounts, request.workload.kind, 100)
    assert admit(request, EMPTY, charge, NOTHING, {}).reasons == ()


@pytest.mark.parametrize(("vcpus", "ratio"), [(10, 0.7), (100, 0.29), (30, 1.1), (100, 0.03)])
def test_a_capacity_is_multiplied_as_placement_multiplies(vcpus, ratio):
    most = int(vcpus * ratio)
    half = most // 2
    node = NodeValues(
        vcpus=vcpus,
        memory_mb=vcpus,
        cpu_allocation_ratio=ratio,
        ram_allocation_ratio=ratio,
        **usage_columns(Amounts(half * 1000, memory_mb=half), {}, vcpus, 0),
    )
    for resource in ("VCPU", "MEMORY_MB"):
        assert reasons(node, resources={resource: most - half}) == ()
        assert reasons(node, resources={resource: most - half + 1}) != ()


def test_a_refusal_lists_all_reasons():
    found = reasons(
        EMPTY, resources={"VCPU": 99, "MEMORY_MB": 99999, "X": 1}, required_traits=["T2"]
    )
    assert [text.split()[0] for text in found] == ["X", "trait", "Free", "Free"]


def test_limits_in_the_request_replace_the_node_s_own():
    full = used(Amounts(28000, memory_mb=11520))
    assert reasons(full, resources={"MEMORY_MB": 1}) != ()
    assert reasons(full, resources={"MEMORY_MB": 1}, limits={"MEMORY_MB": None}) == ()
    lowered = ask(EMPTY, resources={"MEMORY_MB": 513}, limits={"MEMORY_MB": 1024})
    assert list_short(lowered) == {"MEMORY_MB": (512, 513)}


def test_a_request_for_nothing_fits_an_overfull_node():
    overfull = used(Amounts(99000, memory_mb=99999, disk_mb=999 * 1024))
    assert reasons(overfull) == ()
    assert list_short(ask(overfull, resources={"DISK_GB": 1})) == {"DISK_GB": (-900, 1)}


def test_a_guest_s_own_charge_makes_room_for_its_claim():
    full = used(Amounts(memory_mb=11520))
    request = {"resources": {"MEMORY_MB": 2048}}
    assert ask(full, **request).reasons != ()
    assert ask(full, Amounts(memory_mb=2048), **request).reasons == ()
    assert ask(full, Amounts(memory_mb=2047), **request).reasons != ()


def test_fractions_of_cpus_add_up_exactly():
    values = used(Amounts(27900))
    container = WORKLOAD | {"kind": "container"}
    assert reasons(values, workload=container, resources={"VCPU": 0.1}) == ()
    assert reasons(values, workload=container, resources={"VCPU": 0.101}) != ()


def test_a_further_class_is_counted_by_its_claims():
    assert ask(EMPTY, held={"CUSTOM_FPGA": 1}, resources={"CUSTOM_FPGA": 1}).reasons == ()
    assert ask(EMPTY, held={"CUSTOM_FPGA": 2}, resources={"CUSTOM_FPGA": 1}).reasons != ()


def test_a_further_class_has_neither_reservation_nor_ratio_by_default():
    node = replace(EMPTY, inventory={"CUSTOM_FPGA": {"total": 2}})
    assert reasons(node, resources={"CUSTOM_FPGA": 2}) == ()
    assert list_short(ask(node, resources={"CUSTOM_FPGA": 3})) == {"CUSTOM_FPGA": (2, 3)}


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (4, ()),
        (8, ()),
        (2, ("Requested CUSTOM_LICENSE 2 < min_unit 4",)),
        (6, ()),
        (7, ("Requested CUSTOM_LICENSE 7 is not a multiple of step_size 2",)),
        (10, ("Requested CUSTOM_LICENSE 10 > max_unit 8",)),
        (1, (
            "Requested CUSTOM_LICENSE 1 < min_unit 4",
            "Requested CUSTOM_LICENSE 1 is not a multiple of step_size 2",
        )),
    ],
)  # fmt: skip
def test_the_units_of_a_further_class_are_placements(amount, expected):
    units = {"min_unit": 4, "max_unit": 8, "step_size": 2}
    node = replace(EMPTY, inventory={"CUSTOM_LICENSE": {"total": 20} | units})
    assert reasons(node, resources={"CUSTOM_LICENSE": amount}) == expected


def test_the_largest_unit_may_exceed_the_total_and_a_limit_replaces_it():
    node = replace(
        EMPTY, inventory={"CUSTOM_A": {"total": 2, "max_unit": 9, "allocation_ratio": 4.0}}
    )
    assert reasons(node, resources={"CUSTOM_A": 8}) == ()
    lower = replace(node, inventory={"CUSTOM_A": {"total": 9, "max_unit": 2}})
    assert reasons(lower, resources={"CUSTOM_A": 3}, limits={"CUSTOM_A": 5}) == ()
    assert reasons(lower, resources={"CUSTOM_A": 3}) != ()


def test_an_unknown_total_refuses_every_amount():
    lost = FactEntry(FactState.UNKNOWN, "proc", NOW, "gone")
    held = replace(lost, state=FactState.HELD)
    for name, entry, count in (("memory", lost, 1), ("memory", held, 0), ("cpu", lost, 0)):
        values = replace(EMPTY, facts={name: entry})
        found = reasons(values, resources={"MEMORY_MB": 1})
        assert len(found) == count
        assert all(
            "memory has been unknown since" in reason and "gone" in reason for reason in found
        )


@pytest.mark.parametrize("state", [FactState.HELD, FactState.UNKNOWN])
def test_a_kind_of_guests_that_are_not_seen_is_refused_and_no_other(state):
    entry = FactEntry(state, "docker.sock", NOW, "refused", (WorkloadKind.CONTAINER,))
    values = replace(EMPTY, facts={"guests": entry})
    is_held = state is FactState.HELD
    container = {"uuid": builders.WORKLOAD, "kind": "container"}
    (reason,) = reasons(values, workload=container, resources={"VCPU": 1})
    assert reason.endswith("since 2026-03-01 12:00Z: refused")
    assert reason.startswith(
        "containers have not been listed" if is_held else "guests have been unknown"
    )
    assert (reasons(values, resources={"VCPU": 1}) == ()) is is_held


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("pci", {"pci_requests": [{"alias": "nic"}]}),
        ("numa", {"numa": {"nodes": 1}, "resources": {"VCPU": 1}}),
        ("numa", {"resources": {"PCPU": 1}}),
        ("gpus", {"resources": {"PGPU": 1}}),
    ],
    ids=["devices", "cells", "pinned CPUs", "GPUs"],
)
def test_an_unknown_fact_refuses_requests_that_need_it(name, body):
    lost = FactEntry(FactState.UNKNOWN, "sysfs", NOW, "gone")
    values = replace(EMPTY, inventory={"PGPU": {"total": 1}})
    for entry, count in ((lost, 1), (replace(lost, state=FactState.HELD), 0)):
        unknown = replace(values, facts={name: entry})
        found = reasons(unknown, **body)
        assert len(found) == count
        have = "have" if name == "gpus" else "has"
        assert all(reason.startswith(f"{name} {have} been unknown since") for reason in found)
        assert reasons(unknown, resources={"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 1}) == ()


def test_a_dry_run_has_the_numbers_of_every_resource():
    answer = ask(
        used(Amounts(1500, memory_mb=1000, disk_mb=1536)), resources={"VCPU": 2, "MEMORY_MB": 99999}
    )
    vcpu, _, memory, disk = answer.verdicts
    assert (vcpu.total, vcpu.reserved, vcpu.used, vcpu.limit, vcpu.free) == (8, 1, 2.5, 29, 26.5)
    assert (memory.free, memory.requested, memory.fits) == (10520, 99999, False)
    assert (disk.used, disk.requested, disk.fits) == (2.5, 0, True)
