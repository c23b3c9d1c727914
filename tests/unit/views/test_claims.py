"""A refusal's reasons: Nova's sentence for programs; a text and the amounts for people."""

import pytest

from nodetracker.accounting.ledger.admission import AdmissionCheck, render_reason
from nodetracker.accounting.ledger.exclusions import Exclusions, NearMiss, refuse
from nodetracker.model.amounts import (
    DISK,
    MEMORY,
    ORDINARY,
    PCPU,
    VCPU,
    Amounts,
    Missing,
    ResourceVerdict,
)
from nodetracker.model.candidate import CandidateNode
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.views.claims import explain_error, explain_reasons
from tests.builders import ask


def short(resource, free, requested):
    return ResourceVerdict(resource, 99, 0, 1.0, 0, 99, free, requested)


def large(resource, total, excess, max_unit=None, free=99):
    return ResourceVerdict(resource, total, 0, 1.0, 0, 99, free, 50, excess, max_unit)


@pytest.mark.parametrize(
    ("part", "sentence", "text"),
    [
        (short(VCPU, 1, 2), "Free vcpu 1.00 VCPU < requested 2 VCPU", "CPU: 1 free, 2 requested"),
        (
            short(VCPU, 28, 2_000_000.0),
            "Free vcpu 28.00 VCPU < requested 2000000 VCPU",
            "CPU: 28 free, 2,000,000 requested",
        ),
        (short(PCPU, 0, 1), "Free PCPU 0.00 < requested 1", "PCPU: 0 free, 1 requested"),
        (
            short(MEMORY, 31232, 32768),
            "Free memory 31232.00 MB < requested 32768 MB",
            "memory: 30.5 GiB free, 32 GiB requested",
        ),
        (
            short(ORDINARY, 5632, 40960),
            "Free memory outside huge pages 5632.00 MB < requested 40960 MB",
            "memory outside huge pages: 5.5 GiB free, 40 GiB requested",
        ),
        (
            short(DISK, 10.9990234375, 11),  # not shown as large as what is requested
            "Free disk 10.99 GB < requested 11 GB",
            "disk: 10.9 GiB free, 11 GiB requested",
        ),
        (
            short(DISK, -900, 1),
            "Free disk -900.00 GB < requested 1 GB",
            "disk: -900 GiB free, 1 GiB requested",
        ),
        (
            short("CUSTOM_FPGA", 1, 2),
            "Free CUSTOM_FPGA 1.00 < requested 2",
            "CUSTOM_FPGA: 1 free, 2 requested",
        ),
        (
            large(VCPU, 8, 1),
            "Requested vcpu 9 VCPU > max_unit 8 VCPU",
            "CPU: 9 requested, 8 is the most of one claim",
        ),
        (
            large(MEMORY, 8192, 1024, free=None),
            "Requested memory 9216 MB > max_unit 8192 MB",
            "memory: 9 GiB requested, 8 GiB is the most of one claim",
        ),
        (
            large("CUSTOM_LICENSE", 20, 2, max_unit=8),
            "Requested CUSTOM_LICENSE 10 > max_unit 8",
            "CUSTOM_LICENSE: 10 requested, 8 is the most of one claim",
        ),
        (Missing(VCPU, 2), "2 VCPU", "2 VCPU"),
        (Missing(MEMORY, 1536), "1536 MEMORY_MB", "1.5 GiB of memory"),
        (
            Missing(ORDINARY, 512),
            "512 MEMORY_MB outside huge pages",
            "512 MiB of memory outside huge pages",
        ),
        (Missing(DISK, 2), "2 DISK_GB", "2 GiB of disk"),
        (Missing("CUSTOM_FPGA", 1), "1 CUSTOM_FPGA", "1 CUSTOM_FPGA"),
        ("host h1 is down", "host h1 is down", "host h1 is down"),
    ],
    ids=str,
)
def test_a_reason_has_a_sentence_for_programs_and_a_text_for_people(part, sentence, text):
    error = ClaimRefusedError([f"n1: {sentence}"], (), [("n1: ", part)])
    assert render_reason(error.parts[0]) == error.reasons[0]
    assert explain_error(error) == f"n1: {text}"


@pytest.mark.parametrize(
    ("part", "free", "requested", "max_unit"),
    [
        (short(ORDINARY, 5632, 40960), 5632, 40960, None),
        (large(VCPU, 8, 1), None, 9, 8),
        (large(PCPU, 8, 1, free=3), 3, 50, None),
    ],
    ids=["too little is free", "larger than one claim may be", "both"],
)
def test_amounts_are_numbers_in_the_unit_of_the_resource(part, free, requested, max_unit):
    (reason,) = explain_reasons(ClaimRefusedError(["…"], (), [("n1: ", part, " (1 withheld)")]))
    assert reason["amounts"] == [
        {
            "resource": part.resource,
            "free": free,
            "requested": requested,
            "max_unit": max_unit,
        }
    ]


def test_what_an_older_process_sends_without_parts_is_shown_as_it_is():
    sentences = ["h1/n1: Free memory 31232.00 MB < requested 32768 MB", "no such node"]
    expected = [{"text": sentence, "amounts": []} for sentence in sentences]
    assert explain_reasons(ClaimRefusedError(sentences)) == expected
    assert explain_reasons(NearMiss("h1", "n1", (), 1.0, {}, tuple(sentences))) == expected
    asked = CandidateNode(1, "h1", "n1", 1.0, Amounts())
    again = refuse(ask(), Exclusions(1), [(asked, ClaimRefusedError(["no room"]))])
    assert again.reasons[0] == explain_reasons(again)[0]["text"] == "h1/n1: no room"


def test_the_nearest_node_s_reasons_are_one_with_all_their_amounts():
    checks = (AdmissionCheck.UP, AdmissionCheck.RAM)
    memory = short(MEMORY, 1024, 2048)
    sentences = ("host h1 is down", render_reason((memory,)))
    nearest = NearMiss("h1", "n1", checks, 2.0, {MEMORY: 1024}, sentences, ((), (memory,)))
    error = refuse(ask(), Exclusions(1, {AdmissionCheck.UP: 1}, nearest=nearest))
    assert error.reasons == (
        "no candidate: up: 1 of 1 node",
        f"nearest: h1/n1: {', '.join(sentences)}",
    )
    (_, reason) = explain_reasons(error)
    assert reason["text"] == "nearest: h1/n1: host h1 is down, memory: 1 GiB free, 2 GiB requested"
    assert [amounts["free"] for amounts in reason["amounts"]] == [1024]
