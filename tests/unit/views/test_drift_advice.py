"""What operators are told about differences, and what to do."""

import re
from dataclasses import replace

import pytest

from nodetracker.model.claim import ClaimState
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.views.drift import compare_usage, explain_usage
from tests.builders import NOW
from tests.unit.views.drift import WEB, make_claim, make_node

HELD = make_claim(vcpu_milli=2000, memory_mb=1024)
CONFIRMED = replace(HELD, state=ClaimState.CONFIRMED)
CLAIMED = replace(WEB, claim_uuid=HELD.uuid)
MISSING = replace(CLAIMED, missing_since=NOW)


def explain(claims=(), guests=(), **shown):
    record = make_node(claims, guests, **shown)
    return explain_usage(record, compare_usage(record))


def test_a_node_without_differences_needs_no_sentence():
    assert explain(guests=(WEB,)) == []


def test_nothing_agrees_with_a_hypervisor_of_which_nothing_is_known():
    unknown = FactEntry(FactState.UNKNOWN, "driver", NOW, "not ready")
    record = make_node(facts={"guests": unknown}, vcpus_used=0, memory_mb_used=0)
    lines = compare_usage(record)
    assert {line.hypervisor for line in lines} == {None}
    assert explain_usage(record, lines)[0].startswith("The node's guests are not known")


@pytest.mark.parametrize(
    ("claims", "guests", "expected"),
    [
        ((HELD,), (), f"holds 2 CPUs, 1,124 MiB of memory for a guest that is not listed yet.*claim abort {HELD.uuid}"),
        ((replace(HELD, amounts=replace(HELD.amounts, vcpu_milli=1000)),), (), "holds 1 CPU, 1,124 MiB"),
        ((CONFIRMED,), (MISSING,), "its guest is missing.*claim abort"),
        ((replace(CONFIRMED, amounts=replace(HELD.amounts, vcpu_milli=4000)),), (CLAIMED,), "has claimed 2 CPUs more than its guest has"),
        ((HELD, replace(HELD, uuid="other")), (CLAIMED,), "2 claims, .* more than its guest: it moves"),
        ((HELD,), (replace(WEB, kind=WorkloadKind.CONTAINER),), "holds 2 CPUs, 1,124 MiB of memory for a guest that is not listed yet"),
    ],
    ids=["held", "one CPU", "missing", "smaller", "moves", "another's guest"],
)  # fmt: skip
def test_a_difference_is_explained_with_what_to_do(claims, guests, expected):
    (sentence,) = explain(claims, guests)
    assert re.search(expected, sentence), sentence


def test_a_sentence_starts_with_the_name_of_the_workload():
    (named,) = explain((CONFIRMED,), (MISSING,))
    (unnamed,) = explain((CONFIRMED,), (replace(MISSING, name=""),))
    assert named.startswith("web has claimed ")
    assert unnamed.startswith(f"{WEB.uuid} has claimed ")


def test_a_row_that_is_out_of_date_is_audited():
    (sentence,) = explain(guests=(WEB,), memory_mb_used=2148)
    assert sentence == (
        "The row counts 512 MiB of memory more than claims and guests do. The next audit corrects "
        "that; to do it now: node audit host-1 node-1"
    )


def test_rounding_of_the_row_is_shown_as_such():
    (sentence,) = explain(guests=(replace(WEB, vcpu_milli=7500),))
    assert sentence == ("VCPU: 8.5 used, 9 in the row: vcpus_used is rounded up.")
