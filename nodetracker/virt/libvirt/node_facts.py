"""Derive a node's facts from what its hypervisor reports."""

import uuid as uuid_module
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from xml.etree.ElementTree import Element

from nodetracker.errors import HostDataError
from nodetracker.model.fact import Fact, failed, fresh
from nodetracker.model.guest import Guest, GuestListing
from nodetracker.model.host import CpuInfo, HypervisorInfo, MemoryInfo
from nodetracker.model.numa import NumaTopology
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from nodetracker.units import usage_mib_from_bytes
from nodetracker.virt.libvirt import capabilities
from nodetracker.virt.libvirt.disks import StorageScope, list_disks_elsewhere, sum_capacities
from nodetracker.virt.libvirt.guests import GuestReading
from nodetracker.virt.libvirt.pins import derive_pins
from nodetracker.virt.libvirt.storage import NodeStorage
from nodetracker.virt.libvirt.types import DomainStatistics, Identity

_NAMESPACE = uuid_module.UUID("0d7e5fb4-6c2f-5f34-9f0a-3c8c5f2f7d61")
_MISMATCH_FRACTION = 10

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostReading:
    """Data of one query of the hypervisor, not parsed yet."""

    capabilities: str
    memory_mb: int
    cpu_count: int
    cpu_map: tuple[bool, ...]


def map_fact(fact: Fact[S], derive: Callable[[S], T]) -> Fact[T]:
    """Return a fact derived from another; failed if that one failed or has unusable data."""
    if fact.value is None:
        return failed(fact.source, fact.error or "")
    try:
        return fresh(fact.source, derive(fact.value))
    except HostDataError as error:
        return failed(fact.source, str(error))


def derive_cpu(
    host: Fact[HostReading], document: Fact[Element], features: tuple[str, ...]
) -> Fact[CpuInfo]:
    """Return the CPUs.

    Args:
        document: the capabilities of `host`, parsed.
        features: of the processor, including those that its model implies.
    """

    def parse(root: Element) -> CpuInfo:
        assert host.value is not None
        return capabilities.parse_cpu_info(root, host.value.cpu_map, host.value.cpu_count, features)

    return map_fact(document, parse)


def derive_numa(document: Fact[Element], cpu: Fact[CpuInfo]) -> Fact[NumaTopology]:
    """Return the NUMA topology, failed if the CPUs are not known."""
    cpus = cpu.value
    if cpus is None:
        return failed(cpu.source, cpu.error or "")
    return map_fact(document, lambda root: capabilities.parse_numa_topology(root, cpus.online))


def build_hypervisor_info(root: Element, identity: Identity) -> HypervisorInfo:
    """Return the type and version of a hypervisor and the instances that it supports."""
    supported = capabilities.parse_supported_instances(root)
    return HypervisorInfo(identity.type, identity.version, supported)


def derive_node_uuid(root: Element, identity: Identity) -> str | None:
    """Return a uuid that is the same for every agent, None if the machine has no uuid."""
    host_uuid = capabilities.parse_host_uuid(root)
    if host_uuid is None:
        return None
    name = f"{host_uuid}/{identity.hostname}/{identity.type}"
    return str(uuid_module.uuid5(_NAMESPACE, name))


def complete_listing(
    reading: GuestReading, scope: StorageScope, topology: NumaTopology
) -> GuestListing:
    """Return the listing with each guest's pins and disk usage."""
    capacities = sum_capacities(reading.disks, scope)
    elsewhere = list_disks_elsewhere(reading.disks, scope)

    def complete(guest: Guest) -> Guest:
        details = guest.details
        if guest.uuid in elsewhere:
            details = dict(details) | {"disks_elsewhere": elsewhere[guest.uuid]}
        return replace(
            guest,
            disk_mb=usage_mib_from_bytes(capacities[guest.uuid]),
            details=details,
            pins=derive_pins(reading.domains[guest.uuid], topology),
        )

    return replace(reading.listing, guests=tuple(map(complete, reading.listing.guests)))


def build_warnings(
    nodename: str,
    own_memory: HostReading | None,
    memory: Fact[MemoryInfo],
    resources: Fact[list[DomainStatistics]],
    storage: Fact[NodeStorage],
) -> tuple[HostWarning, ...]:
    """Return the warnings of one reading.

    Args:
        own_memory: the reading to compare the memory with, None if it is not
            known or the node offers a file's memory instead of its own.
    """
    found = []
    if own_memory is not None and memory.value is not None:
        reported, total = own_memory.memory_mb, memory.value.total_mb
        if abs(total - reported) * _MISMATCH_FRACTION > total:
            message = (
                f"libvirt's node information reports {reported} MiB of memory, the kernel "
                f"{total} MiB; using the kernel's value"
            )
            found.append(HostWarning(WarningKind.MEMORY_MISMATCH, nodename, "node info", message))
    if resources.error is not None:
        message = (
            "disk sizes cannot be read, using the last known ones: "
            f"{resources.source}: {resources.error}"
        )
        found.append(HostWarning(WarningKind.DISK_UNREADABLE, nodename, NO_ITEM, message))
    if storage.value is not None:
        found += [
            HostWarning(WarningKind.DISK_UNREADABLE, nodename, item[:255], f"{item}: {problem}")
            for item, problem in storage.value.problems
        ]
    return tuple(found)
