import dataclasses

import pytest

from nodetracker.model.claim import ClaimState
from nodetracker.views.drift import DriftCause, compare_usage
from tests.builders import NOW, make_guest
from tests.unit.views.drift import WEB, make_claim, make_node


def lines(*arguments, **shown):
    return {
        line.resource: tuple(line.as_row().values())[1:]
        for line in compare_usage(make_node(*arguments, **shown))
    }


def test_a_node_without_workloads_uses_the_reserved_amounts():
    assert lines() == {
        "VCPU": (1, 1, 1, 0, ""),
        "PCPU": (0, 0, None, 0, ""),
        "MEMORY_MB": (512, 512, 512, 0, ""),
        "DISK_GB": (1, 1, 1, 0, ""),
        "CUSTOM_FPGA": (None, 1, None, None, ""),
    }


def test_causes_have_the_amounts_of_claim_and_guest():
    claim = make_claim(vcpu_milli=2500, disk_mb=1024)
    other = make_claim(2, vcpu_milli=1000)
    guest = make_guest(1, name="web", vcpu_milli=2000, memory_mb=0, disk_mb=0,
                       claim_uuid=claim.uuid)  # fmt: skip
    [line, *_] = compare_usage(make_node((claim, other), (guest,), vcpus_used=6))
    unlisted = make_guest(2).uuid
    assert line.causes == (
        DriftCause(None, "", None, None, 1.5),
        DriftCause(unlisted, "", 1, None, 1),
        DriftCause(guest.uuid, "web", 2.5, 2, 0.5),
    )


def test_an_unclaimed_guest_is_not_a_difference():
    found = lines((), (WEB,))
    assert found["VCPU"] == (3, 3, 3, 0, "")
    assert found["MEMORY_MB"] == (1636, 1636, 1636, 0, "")


def test_a_claim_is_compared_with_its_guest():
    claim = make_claim(vcpu_milli=2500, memory_mb=1024, disk_mb=11 * 1024, pcpus=2)
    guest = make_guest(1, name="web", vcpu_milli=2000, memory_mb=1024, disk_mb=10240,
                       claim_uuid=claim.uuid)  # fmt: skip
    found = lines((claim,), (guest,))
    assert found["VCPU"] == (3.5, 3.5, 3, 0.5, "web +0.5")
    assert found["MEMORY_MB"] == (1636, 1636, 1636, 0, "")
    assert found["DISK_GB"] == (12, 12, 11, 1, "web +1")
    assert found["PCPU"] == (2, 2, None, 0, "")


def test_a_guest_that_is_larger_than_its_claim_is_not_a_difference():
    claim = make_claim(vcpu_milli=1000, memory_mb=768, disk_mb=5120)
    guest = dataclasses.replace(WEB, claim_uuid=claim.uuid)
    assert lines((claim,), (guest,)) == lines((), (WEB,))


@pytest.mark.parametrize("guests", [(), (make_guest(1, claim_uuid="c", missing_since=NOW),)])
def test_a_claim_whose_guest_is_not_listed_is_a_difference(guests):
    found = lines((make_claim(vcpu_milli=2000, resources={"CUSTOM_FPGA": 2}),), guests)
    assert found["VCPU"][:4] == (3, 3, 1, 2)
    assert found["VCPU"][4].endswith(" +2")
    assert found["MEMORY_MB"][:4] == (612, 612, 512, 100)
    assert found["CUSTOM_FPGA"] == (None, 3, None, None, "")


def test_a_released_claim_does_not_count():
    assert lines((make_claim(state=ClaimState.RELEASED, vcpu_milli=2000),)) == lines()


def test_a_difference_without_a_workload_is_attributed_to_the_row():
    found = lines((), (WEB,), vcpus_used=5, memory_mb_used=1700, pcpus_used=1)
    assert found["VCPU"] == (5, 3, 3, 2, "row +2")
    assert found["MEMORY_MB"] == (1700, 1636, 1636, 64, "row +64")
    assert found["PCPU"] == (1, 0, None, 1, "row +1")
    assert found["DISK_GB"][4] == ""


def test_the_row_s_whole_units_count_where_its_fractions_disagree():
    assert lines((), (WEB,), local_gb_used=20)["DISK_GB"] == (20, 11, 11, 9, "row +9")
    assert lines((), (WEB,), disk_used=19.0)["DISK_GB"] == (11, 11, 11, 0, "")


def test_further_classes_are_those_of_active_claims_and_of_the_inventory():
    released = make_claim(2, state=ClaimState.RELEASED, resources={"CUSTOM_FPGA": 2, "CUSTOM_X": 1})
    assert lines((released,)) == lines()
    found = lines((released, make_claim(resources={"CUSTOM_OLD": 1})))
    assert found["CUSTOM_FPGA"] == (None, 1, None, None, "")
    assert found["CUSTOM_OLD"] == (None, 1, None, None, "")
    assert "CUSTOM_X" not in found


def test_every_workload_that_differs_is_named_in_order():
    claims = tuple(make_claim(number, vcpu_milli=number * 1000) for number in (2, 1))
    texts = [f"{make_guest(number).uuid} +{number}" for number in (1, 2)]
    assert lines(claims)["VCPU"] == (4, 4, 1, 3, ", ".join(texts))
