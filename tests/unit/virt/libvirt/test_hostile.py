"""Documents of libvirt that random ones have shown to count as nothing, or to take long."""

import pytest

from nodetracker.virt.libvirt.guests import DomainReader
from tests.hostile.libvirt import CAPABILITIES, DEVICES, FULL_DOMAIN, UUIDS, LibvirtNode
from tests.hostile.limits import limited
from tests.hostile.values import DOCTYPES

NODE = LibvirtNode()
PINS = "".join(f"<vcpupin vcpu='{n}' cpuset='0-65535,^{n}'/>" for n in range(20_000))
ROWS = "".join(f"<cpu id='{n}' core_id='0' siblings='0-65535'/>" for n in range(20_000))
ADDRESS = "<address domain='0x0000' bus='0x81' slot='0x00' function='0x1'/>"
CHANGES = {
    "vCPUs on all CPUs": ("cpuset='0-3' current='3'>4<", "cpuset='0-65535' current='3'>65535<"),
    "pins on all CPUs": ("<cputune>", f"<cputune>{PINS}"),
    "overlapping ranges": ("cpuset='0-3'", f"cpuset='{'0-65535,' * 60_000}'"),
    "no vCPU": ("current='3'", "current='0'"),
    "digits of another script": ("current='3'", "current='\N{ARABIC-INDIC DIGIT THREE}'"),
    "two sizes": ("<currentMemory", "<memory unit='KiB'>1</memory><currentMemory"),
    "two cells with one id": ("<cell id='1'", "<cell id='0'"),
    "an unknown module": ("model='dimm'", "model='new'"),
    "modules larger than all": (">1048576</size>", ">9048576</size>"),
    "a device without an address": (ADDRESS, ""),
    "a slot that no bus has": ("slot='0x00' function='0x1'", "slot='0x20' function='0x1'"),
    "a mediated device without a uuid": ("uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'", ""),
    "another's uuid": (f"<uuid>{UUIDS[1]}", f"<uuid>{UUIDS[2]}"),
}


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_a_domain_is_named_or_counts_what_it_did(old: str, new: str) -> None:
    assert old in FULL_DOMAIN
    with limited():
        assert list(NODE.find_faults_of_domain(FULL_DOMAIN.replace(old, new, 1))) == []


@pytest.mark.parametrize("declaration", DOCTYPES, ids=["laughs", "file", "long", "none"])
@pytest.mark.parametrize("before", ["", "\ufeff<?xml version='1.0'?> \n<!-- <domain> -->"])
def test_a_document_that_declares_entities_is_not_read(declaration: str, before: str) -> None:
    text = before + declaration.replace("{root}", "domain") + FULL_DOMAIN
    reader = DomainReader({UUIDS[1]: text.replace("guest-1", "&e9;")}.get)
    with limited(seconds=1):
        (listed,) = reader.read([NODE.states[1]], None, ())
    assert listed.error == "domain guest-1: has a document type declaration"


def test_a_document_may_have_such_text_elsewhere() -> None:
    for text in ("<!-- <!DOCTYPE domain> -->", "<![CDATA[<!DOCTYPE domain>]]>"):
        found = NODE.read_guests(
            NODE.domains | {UUIDS[1]: FULL_DOMAIN.replace("<os>", text + "<os>")}
        )
        assert found == NODE.good


def test_a_function_with_the_address_of_another_is_named() -> None:
    assert list(NODE.find_faults_of_device(DEVICES["pci_0000_81_00_2"])) == []


@pytest.mark.parametrize(
    "statistics",
    [
        {"block.count": 2**31},
        {"block.count": -1},
        {"vcpu.maximum": 2**31, "vcpu.current": 1},
        {"state.state": []},
    ],
    ids=str,
)
def test_statistics_of_any_size_take_little_time(statistics: dict[str, object]) -> None:
    with limited(seconds=1):
        listing = NODE.read_guests(NODE.domains, **statistics)
    assert {guest.uuid for guest in listing.all_guests} == set(UUIDS)


@pytest.mark.parametrize("count", [2**31, -1])
def test_a_host_of_any_number_of_cpus_takes_little_time(count: int) -> None:
    with limited():
        assert list(NODE.find_faults_of_host(CAPABILITIES, count)) == []
        assert list(NODE.find_faults_of_host("<capabilities/>", count)) == []


def test_siblings_are_few() -> None:
    with limited():
        cpu, _ = NODE.read_host(CAPABILITIES.replace("<cpus num='4'>", f"<cpus num='4'>{ROWS}"))
    assert "more than 256 siblings" in str(cpu.error)
