"""Feed a libvirt driver's readers documents of which one part, or all of one, is hostile."""

import copy
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from nodetracker.model.fact import Fact, fresh
from nodetracker.model.guest import Guest, GuestListing, PartialGuest
from nodetracker.model.numa import NumaTopology
from nodetracker.virt.libvirt.capabilities import list_huge_pages, parse_capabilities
from nodetracker.virt.libvirt.devices import DeviceReader
from nodetracker.virt.libvirt.guests import DomainReader
from nodetracker.virt.libvirt.node_facts import (
    HostReading,
    build_hypervisor_info,
    build_listing,
    derive_cpu,
    derive_node_uuid,
    derive_numa,
)
from nodetracker.virt.libvirt.sizes import SizeReading
from nodetracker.virt.libvirt.storage import StorageScope
from nodetracker.virt.libvirt.types import DomainStatistics, Identity
from nodetracker.virt.use import UseResolver
from tests.hostile.values import list_elements
from tests.unit.virt.libvirt.documents import capabilities, cell

UUIDS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
FULL_DOMAIN = f"""<domain type='kvm' id='1'>
  <name>guest-1</name><uuid>{UUIDS[1]}</uuid>
  <metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>
    <nova:owner><nova:project uuid='p1'>p</nova:project></nova:owner></nova:instance></metadata>
  <memory unit='KiB'>3145728</memory><currentMemory unit='KiB'>2097152</currentMemory>
  <memoryBacking><hugepages><page size='2048' unit='KiB' nodeset='1'/></hugepages></memoryBacking>
  <vcpu placement='static' cpuset='0-3' current='3'>4</vcpu>
  <vcpus><vcpu id='0' enabled='yes'/><vcpu id='3' enabled='no'/></vcpus>
  <cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='2'/>
    <emulatorpin cpuset='0-1'/><iothreadpin iothread='1' cpuset='3'/></cputune>
  <numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' mode='strict' nodeset='1'/>
  </numatune>
  <os><type arch='x86_64'>hvm</type></os>
  <cpu><numa><cell id='0' cpus='0-1' memory='1048576' unit='KiB'/>
    <cell id='1' cpus='2-3' memory='1048576' unit='KiB'/></numa></cpu>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/a'/>
      <target dev='vda' bus='virtio'/></disk>
    <disk type='nvme' device='disk'><source type='pci' namespace='1'>
      <address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>
      <target dev='vdb'/></disk>
    <hostdev mode='subsystem' type='pci'><source>
      <address domain='0x0000' bus='0x81' slot='0x00' function='0x1'/></source></hostdev>
    <hostdev mode='subsystem' type='mdev'><source>
      <address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>
    <interface type='hostdev'><source><address type='pci' domain='0' bus='0x81' slot='0'
      function='0x2'/></source></interface>
    <interface type='direct'><source dev='eth0' mode='vepa'/></interface>
    <memory model='dimm'><target><size unit='KiB'>1048576</size><node>0</node></target></memory>
  </devices>
</domain>"""


def plain_domain(number: int) -> str:
    return f"""<domain><name>guest-{number}</name><uuid>{UUIDS[number]}</uuid>
  <memory unit='KiB'>1048576</memory><vcpu>2</vcpu><os><type>hvm</type></os></domain>"""


CAPABILITIES = capabilities(
    cell(0, [0, 1, 2, 3], 4194304, 2, pages={4: 1000, 2048: 512}, distances={0: 10, 1: 20}),
    cell(1, [4, 5, 6, 7], 4194304, 2, 1, pages={4: 1000, 2048: 512}, distances={0: 20, 1: 10}),
    uuid="11111111-2222-4333-8444-555555555555",
    more="<guest><os_type>hvm</os_type><arch name='x86_64'><domain type='kvm'/></arch></guest>",
)
DEVICES = {
    f"pci_0000_81_00_{number}": f"""<device><name>pci_0000_81_00_{number}</name>
  <driver><name>vfio-pci</name></driver>
  <capability type='pci'><class>0x030200</class><domain>0</domain><bus>129</bus><slot>0</slot>
    <function>{number}</function><product id='0x2335'>card</product><vendor id='0x10de'>m</vendor>
    <capability type='phys_function'><address domain='0' bus='0x81' slot='0' function='0'/>
    </capability>
    <capability type='virt_functions' maxCount='4'/>
    <capability type='mdev_types'><type id='a'><name>b</name><deviceAPI>vfio-pci</deviceAPI>
      <availableInstances>2</availableInstances></type></capability>
    <iommuGroup number='{number + 1}'/><numa node='1'/></capability></device>"""
    for number in range(3)
}


class LibvirtNode:
    """Three domains, three PCI functions and the capabilities of one node."""

    def __init__(self) -> None:
        self.domains = {
            uuid: FULL_DOMAIN if number == 1 else plain_domain(number)
            for number, uuid in enumerate(UUIDS)
        }
        self.states = [
            DomainStatistics(uuid, f"guest-{number}", {"state.state": 1, "state.reason": 1})
            for number, uuid in enumerate(UUIDS)
        ]
        self.topology = self.read_host(CAPABILITIES)[1].value or NumaTopology()
        self.good = self.read_guests(self.domains)
        assert not self.good.partial, self.good.partial

    def read_guests(self, domains: dict[str, str], **statistics: Any) -> GuestListing:
        """Read the domains' documents."""
        states = self.states
        bulk = [
            DomainStatistics(state.uuid, state.name, dict(state.values) | statistics)
            for state in states
        ]
        reader = DomainReader(domains.get)
        for _ in range(2):
            listed = reader.read(states, bulk, ())
        found = build_listing(
            fresh("s", listed),
            SizeReading(()),
            fresh("s", bulk),
            StorageScope(),
            self.topology,
            UseResolver(),
            (),
        )
        assert found.value is not None
        return found.value

    def read_host(
        self, text: str, cpu_count: int = 8, cpu_map: tuple[bool, ...] = (True,) * 8
    ) -> tuple[Fact[Any], Fact[NumaTopology]]:
        """Read the capabilities."""
        host = fresh("s", HostReading(text, 8192, cpu_count, cpu_map))
        document = host.map(lambda value: parse_capabilities(value.capabilities))
        cpu = derive_cpu(host, document, ())
        identity = Identity("QEMU", 1, "host-1")
        document.map(lambda root: derive_node_uuid(root, identity))
        document.map(lambda root: build_hypervisor_info(root, identity))
        document.map(list_huge_pages)
        return cpu, derive_numa(document, cpu, {0: {2048: 5}, 1: {2048: 5}})

    def find_faults_of_host(self, text: str, *counts: Any) -> Iterator[str]:
        """Yield what is wrong when the capabilities are bad, or say something else."""
        cpu, numa = self.read_host(text, *counts)
        for fact in (cpu, numa):
            if fact.value is None and not (fact.error or "").strip():
                yield f"no reason: {fact}"

    def find_faults_of_domain(self, text: str) -> Iterator[str]:
        """Yield what is wrong when the full domain has another document, of which a part is bad."""
        listing = self.read_guests(self.domains | {UUIDS[1]: text})
        now = {guest.uuid: guest for guest in listing.all_guests}
        for good in self.good.guests:
            other = now.get(good.uuid)
            if good.uuid != UUIDS[1]:
                if other != good:
                    yield f"another guest changed: {other}"
            elif other is None:
                yield "the guest is not counted"
            elif isinstance(other, PartialGuest):
                if "guest-1" not in other.problem:
                    yield f"not named: {other.problem}"
            elif is_less(other, good):
                yield f"counts less: {other}"

    def find_faults_of_device(self, text: str) -> Iterator[str]:
        """Yield what is wrong when one PCI function has another document."""
        name = "pci_0000_81_00_1"
        documents = DEVICES | {name: text}
        good = DeviceReader(DEVICES.get).read(list(DEVICES), have_changed=False)
        reader = DeviceReader(documents.get)
        found = reader.read(list(DEVICES), have_changed=False)
        reader.mdev_types()
        own = [device for device in good.value if device.address != "0000:81:00.1"]
        if [d for d in found.value if d.address in {o.address for o in own}] != own:
            yield f"other devices changed: {found.value}"
        if len(found.value) != len(good.value) and not any(
            name in problem.path for problem in found.problems
        ):
            yield f"a device is lost, and nothing names it: {found.problems}"


def is_less(guest: Guest, good: Guest) -> bool:
    """Return whether a guest counts less of something than it should."""
    return (
        guest.vcpu_milli < good.vcpu_milli
        or guest.memory_mb < good.memory_mb
        or not set(good.pins.devices) <= set(guest.pins.devices)
        or len(guest.pins.unresolved) < len(good.pins.unresolved)
    )


PLAIN_NUMBER = re.compile("[0-9]{1,19}")
_SELECTING = {"type", "dev", "model", "mode"}
"""Attributes that say what an element is, so that with another value it is something else."""


def list_values(text: str) -> list[tuple[int, str | None]]:
    """Return the places of a document: an element's number with an attribute, None = its text."""
    places: list[tuple[int, str | None]] = []
    for number, element in enumerate(list_elements(text)):
        if (element.text or "").strip():
            places.append((number, None))
        places += [(number, name) for name in element.attrib if name not in _SELECTING]
    return places


def with_value(text: str, place: tuple[int, str | None], value: str) -> str:
    """Return a document with another text or attribute at a place."""
    elements = list_elements(text)
    number, name = place
    if name is None:
        elements[number].text = value
    else:
        elements[number].set(name, value)
    return ElementTree.tostring(elements[0], encoding="unicode")


def with_count(text: str, number: int, count: int) -> str:
    """Return a document that has one of its elements, but the root, that often."""
    elements = list_elements(text)
    element = elements[number]
    parent = next((other for other in elements if element in other), None)
    if parent is not None:
        parent.remove(element)
        parent.extend(copy.deepcopy(element) for _ in range(count))
    return ElementTree.tostring(elements[0], encoding="unicode")
