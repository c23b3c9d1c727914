"""Derive a node's facts from what its hypervisor reports."""

import uuid as uuid_module
from collections.abc import Collection
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from nodetracker.model.amount_text import render_mib
from nodetracker.model.fact import Fact, failed
from nodetracker.model.guest import Guest, GuestListing, PartialGuest
from nodetracker.model.host import CpuInfo, HypervisorInfo, MemoryInfo
from nodetracker.model.numa import NumaTopology
from nodetracker.model.warning import NO_ITEM, HostWarning, WarningKind
from nodetracker.virt.libvirt import capabilities
from nodetracker.virt.libvirt.guests import ListedDomain, bind_uses, build_guest
from nodetracker.virt.libvirt.sizes import SizeReading
from nodetracker.virt.libvirt.storage import (
    NodeStorage,
    StorageScope,
    list_disks_elsewhere,
    list_shared,
    sum_capacities,
)
from nodetracker.virt.libvirt.types import DomainStatistics, Identity
from nodetracker.virt.use import UseResolver

_NAMESPACE = uuid_module.UUID("0d7e5fb4-6c2f-5f34-9f0a-3c8c5f2f7d61")
_MISMATCH_FRACTION = 10


@dataclass(frozen=True, slots=True)
class HostReading:
    """Data of one query of the hypervisor, not parsed yet."""

    capabilities: str
    memory_mb: int
    cpu_count: int
    cpu_map: tuple[bool, ...]


def derive_cpu(
    host: Fact[HostReading], document: Fact[Element], features: tuple[str, ...]
) -> Fact[CpuInfo]:
    """Return the CPUs."""

    def parse(root: Element) -> CpuInfo:
        assert host.value is not None
        return capabilities.parse_cpu_info(root, host.value.cpu_map, host.value.cpu_count, features)

    return document.map(parse)


def derive_numa(
    document: Fact[Element], cpu: Fact[CpuInfo], free_pages: capabilities.FreePages
) -> Fact[NumaTopology]:
    """Return the NUMA topology, failed if the CPUs are not known."""
    cpus = cpu.value
    if cpus is None:
        return failed(cpu.source, cpu.error or "")
    return document.map(
        lambda root: capabilities.parse_numa_topology(root, cpus.online, free_pages)
    )


def build_hypervisor_info(root: Element, identity: Identity) -> HypervisorInfo:
    supported = capabilities.parse_supported_instances(root)
    return HypervisorInfo(identity.type, identity.version, supported)


def derive_node_uuid(root: Element, identity: Identity) -> str | None:
    """Return a uuid that is the same for every agent, None if the machine has no uuid."""
    host_uuid = capabilities.parse_host_uuid(root)
    if host_uuid is None:
        return None
    name = f"{host_uuid}/{identity.hostname}/{identity.type}"
    return str(uuid_module.uuid5(_NAMESPACE, name))


def build_listing(
    domains: Fact[tuple[ListedDomain, ...]],
    sizes: SizeReading,
    bulk: Fact[list[DomainStatistics]],
    scope: StorageScope,
    topology: NumaTopology,
    resolver: UseResolver,
    capable: Collection[str],
) -> Fact[GuestListing]:
    """Return all domains as guests; read in part if bulk statistics could not be read.

    Args:
        resolver: as last read.
        capable: addresses of the functions that have mediated devices.
    """
    if domains.value is None:
        return failed(domains.source, domains.error or "")
    capacities = sum_capacities(sizes.disks, scope)
    elsewhere, shared = list_disks_elsewhere(sizes.disks, scope), list_shared(sizes.disks)
    guests = [
        bind_uses(
            build_guest(
                listed,
                capacities.get(listed.state.uuid, 0),
                sizes.silent.get(listed.state.uuid, ""),
                elsewhere.get(listed.state.uuid, ()),
                shared.get(listed.state.uuid, {}),
                topology,
            ),
            listed,
            resolver,
            capable,
        )
        for listed in sorted(domains.value, key=lambda listed: listed.state.uuid)
    ]
    listing = GuestListing(
        tuple(guest for guest in guests if isinstance(guest, Guest)),
        partial=tuple(guest for guest in guests if isinstance(guest, PartialGuest)),
    )
    error = None if bulk.error is None else f"disk sizes: {bulk.error}"
    return Fact(domains.source, listing, error)


def build_warnings(
    nodename: str,
    own_memory: HostReading | None,
    memory: Fact[MemoryInfo],
    bulk: Fact[list[DomainStatistics]],
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
                f"libvirt's node information reports {render_mib(reported)} of memory, the "
                f"kernel {render_mib(total)}; using the kernel's value"
            )
            found.append(HostWarning(WarningKind.MEMORY_MISMATCH, nodename, "node info", message))
    if bulk.error is not None:
        message = f"disk sizes cannot be read, using the last known ones: {bulk.error}"
        found.append(HostWarning(WarningKind.DISK_UNREADABLE, nodename, NO_ITEM, message))
    if storage.value is not None:
        found += [
            HostWarning(WarningKind.DISK_UNREADABLE, nodename, item[:255], f"{item}: {problem}")
            for item, problem in storage.value.problems
        ]
    return tuple(found)
