"""What a node lacks for a claim, and which of several nodes is the nearest."""

from dataclasses import replace

import pytest

from nodetracker.accounting.ledger.admission import (
    Admission,
    AdmissionCheck,
    Refusal,
)
from nodetracker.accounting.ledger.exclusions import (
    Exclusions,
    NearMiss,
    count_misses,
    evaluate_miss,
    render_exclusions,
)
from nodetracker.accounting.pci.admission import PciVerdict, PoolFinding, RequestFinding
from nodetracker.accounting.pci.columns import PciPool
from nodetracker.model.amounts import ResourceVerdict
from nodetracker.model.pci import PciDeviceType, PciRequest
from tests.builders import ask


def verdict(resource, requested, free, total=8, excess=None):
    return ResourceVerdict(resource, total, 0, 1.0, 0, total, free, requested, excess)


def refuse(*checks, verdicts=()):
    parts = {check: ("it fails",) for check in (AdmissionCheck.CLASSES,) if verdicts}
    refusals = tuple(Refusal(check, f"{check} fails", parts.get(check, ())) for check in checks)
    return evaluate_miss("h1", "n1", Admission(tuple(verdicts), refusals))


def miss(name, *checks, shortage=1.0):
    return NearMiss("h1", name, checks, shortage)


def test_a_node_that_accepts_the_claim_lacks_nothing():
    assert evaluate_miss("h1", "n1", Admission((verdict("VCPU", 2, 2),), ())) is None


@pytest.mark.parametrize(
    ("found", "missing", "shortage"),
    [
        (verdict("VCPU", 4, 2), 2, 0.5),
        (verdict("VCPU", 4, -4), 8, 2.0),
        (verdict("VCPU", 0.3, 0.2), 0.1, 1 / 3),
        (verdict("VCPU", 10, 40, excess=2), 2, 0.2),
        (verdict("VCPU", 10, 5, excess=2), 5, 0.5),
        (verdict("CUSTOM_FPGA", 4, 3), 1, 0.25),
        (verdict("CUSTOM_FPGA", 1, -2), 3, 1.0),
    ],
    ids=[
        "too little free",
        "overfull",
        "fractions",
        "larger than the node",
        "both",
        "a further class",
        "overfull with a further class",
    ],
)
def test_the_amount_that_is_missing(found, missing, shortage):
    check = AdmissionCheck.CPU if found.resource == "VCPU" else AdmissionCheck.CLASSES
    lacking = refuse(check, verdicts=[found, verdict("MEMORY_MB", 1, 1)])
    assert (lacking.missing, lacking.shortage) == ({found.resource: missing}, shortage)
    assert lacking.reasons == (f"{check} fails",)


def test_checks_without_an_amount_count_in_full():
    lacking = refuse(
        AdmissionCheck.CPU, AdmissionCheck.ENABLED, AdmissionCheck.CPU,
        verdicts=[verdict("VCPU", 4, 3)],
    )  # fmt: skip
    assert lacking.checks == (AdmissionCheck.ENABLED, AdmissionCheck.CPU)
    assert lacking.shortage == 1.25


def test_a_node_without_a_class_or_device_is_farther_than_one_that_has_none_left():
    classes, pci = AdmissionCheck.CLASSES, AdmissionCheck.PCI
    absent = evaluate_miss("h1", "n1", Admission((), (Refusal(classes, "not a class"),)))
    used = refuse(classes, verdicts=[verdict("PGPU", 1, 0)])
    assert absent.rank > used.rank
    pool = PoolFinding(PciPool("10de", "2331", PciDeviceType.PCI, 0, ()), 0, {})
    ranks = [
        evaluate_miss(
            "h1", "n1",
            Admission(
                (), (Refusal(pci, "too few"),),
                pci=PciVerdict((RequestFinding(PciRequest("gpu", 2), True, "", pools),)),
            ),
        ).rank
        for pools in ((), (pool,), (replace(pool, usable=1),))
    ]  # fmt: skip
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 3


def test_nodes_that_allow_no_claim_of_the_size_are_counted_apart():
    large, full = verdict("VCPU", 10, 40, excess=2), verdict("VCPU", 10, 5, excess=2)
    cpu = AdmissionCheck.CPU
    misses = [
        evaluate_miss("h1", "n1", Admission((found,), (Refusal(cpu, "no", (found,)),)))
        for found in (large, full)
    ]
    assert count_misses(misses).too_large == {cpu: 1}


def test_the_nearest_node_fails_the_fewest_checks_then_lacks_the_least():
    cpu, ram = AdmissionCheck.CPU, AdmissionCheck.RAM
    two, much, little = (
        miss("a", cpu, ram, shortage=0.1),
        miss("b", cpu),
        miss("c", cpu, shortage=0.5),
    )
    found = count_misses([None, two, much, little, miss("d", cpu, shortage=0.5)])
    assert (found.total, found.counts, found.nearest) == (5, {cpu: 4, ram: 1}, little)
    assert count_misses([None]).nearest is None


def test_checks_of_which_not_all_nodes_were_evaluated_are_counted_at_least():
    up, numa = AdmissionCheck.UP, AdmissionCheck.NUMA
    found = Exclusions(9, {up: 3, numa: 1}, frozenset({numa}), miss("b", up, numa))
    assert render_exclusions(found, ask()) == "up: 3 of 9 nodes, numa: at least 1 of 9 nodes"
