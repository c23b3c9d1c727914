"""Read the documents of a node's guests, and build guests from them.

A document is cached and read again only after an event for its domain, when
bulk statistics show that it has changed, or when it is ten minutes old. So a
listing needs a fixed number of round trips.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.model.cpuset import MAX_CPU_ID, CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import (
    ARRIVING,
    CpuAffinity,
    Guest,
    GuestPins,
    LoosePages,
    PartialGuest,
    PowerState,
    WorkloadKind,
)
from nodetracker.model.numa import CellAssignment, NumaTopology
from nodetracker.model.units import MILLI, usage_mib_from_bytes
from nodetracker.virt.libvirt.domain import DEFAULT_PAGE_KB, Domain, MemoryPart, parse_domain
from nodetracker.virt.libvirt.types import DomainStatistics
from nodetracker.virt.use import UseResolver, bind

REREAD_SECONDS = 600.0
"""Age at which a document is read again even if nothing indicates a change."""
# Source: libvirt's virDomainState.
_POWER_STATES = {
    0: PowerState.NOSTATE,
    1: PowerState.RUNNING,
    2: PowerState.RUNNING,  # blocked on a resource
    3: PowerState.PAUSED,
    4: PowerState.RUNNING,  # being shut down
    5: PowerState.SHUTDOWN,
    6: PowerState.CRASHED,
    7: PowerState.SUSPENDED,
}
DOM0_UUID = "00000000-0000-0000-0000-000000000000"
"""Xen's control domain, which is the host itself: libvirt lists it among the domains."""

_RUNNING, _OFF = 1, 5
_STARTING_UP = (3, 11)
_MIGRATING = (3, 2)  # paused, as the destination of a migration is until it takes over
"""State and reason of a guest whose emulator waits for libvirt to start it: it is not paused."""


@dataclass(frozen=True, slots=True)
class ListedDomain:
    """One domain of a listing.

    Attributes:
        domain: its document as last read, None if that is invalid or was never read.
        error: what is invalid, or why it cannot be read; "" if it is current.
    """

    state: DomainStatistics
    domain: Domain | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _CachedDocument:
    """A document as last read: the parsed domain or the error, and the statistics at that time."""

    domain: Domain | None
    error: str
    read_at: float
    fingerprint: tuple[object, ...] | None = None
    is_off: bool = False


class DomainReader:
    """Reads domains and caches the documents of one connection's domains between listings.

    Args:
        read_xml: returns a domain's document, None when the domain does not exist any more;
            raises HostDataError when it cannot be read for this domain only.
        has_saved_state: returns whether a domain that is off has a saved state.
    """

    def __init__(
        self,
        read_xml: Callable[[str], str | None],
        monotonic: Callable[[], float] = time.monotonic,
        has_saved_state: Callable[[str], bool] = lambda uuid: False,
    ) -> None:
        self._read_xml = read_xml
        self._has_saved_state = has_saved_state
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._documents: dict[str, _CachedDocument] = {}
        self._is_stale = False

    def read(
        self,
        states: Sequence[DomainStatistics],
        bulk: Sequence[DomainStatistics] | None,
        changed: Iterable[str],
    ) -> tuple[ListedDomain, ...]:
        """Return all guests' domains; read the documents that are missing or out of date.

        Args:
            bulk: bulk statistics, None when they could not be read.
        """
        with self._lock:
            return tuple(self._read(states, bulk or (), set(changed)))

    def refresh(self) -> None:
        """Let the next reading read all documents again."""
        self._is_stale = True

    def _read(
        self,
        states: Sequence[DomainStatistics],
        bulk: Sequence[DomainStatistics],
        changed: set[str],
    ) -> Iterator[ListedDomain]:
        known = {state.uuid for state in states}
        fingerprints = {item.uuid: _fingerprint(item.values) for item in bulk}
        self._documents = {uuid: entry for uuid, entry in self._documents.items() if uuid in known}
        if self._is_stale:
            self._is_stale, changed = False, known
        for state in states:
            if state.uuid == DOM0_UUID:
                continue
            entry = self._get_document(state, fingerprints.get(state.uuid), state.uuid in changed)
            if entry is not None:  # else it was undefined since it was listed
                yield ListedDomain(state, entry.domain, entry.error)

    def _get_document(
        self, state: DomainStatistics, fingerprint: tuple[object, ...] | None, has_changed: bool
    ) -> _CachedDocument | None:
        """Return a domain's document, from the cache while that is current."""
        entry = self._documents.get(state.uuid)
        is_current = (
            entry is not None
            and not has_changed
            and entry.is_off == _is_off(state)  # its event may be older than the document
            and self._monotonic() - entry.read_at < REREAD_SECONDS
            and (fingerprint is None or entry.fingerprint in {None, fingerprint})
        )
        if entry is not None and is_current:
            if entry.fingerprint is None and fingerprint is not None:
                entry = replace(entry, fingerprint=fingerprint)
                self._documents[state.uuid] = entry
            return entry
        found = self._read_document(state, None if entry is None else entry.domain, fingerprint)
        if found is not None:
            self._documents[state.uuid] = found
        return found

    def _read_document(
        self,
        state: DomainStatistics,
        last: Domain | None,
        fingerprint: tuple[object, ...] | None,
    ) -> _CachedDocument | None:
        """Read a document; one that cannot be read is read again the next time."""
        source = f"domain {state.name}"
        try:
            text = self._read_xml(state.uuid)
        except HostDataError as failure:
            return _CachedDocument(last, f"{source}: {failure.reason}", -math.inf)
        if text is None:
            return None
        domain, error = None, ""
        try:
            found = parse_domain(text, source)
            if found.uuid != state.uuid:
                raise HostDataError(source, f"has the document of domain {found.uuid}")
            domain = found
            if _is_off(state):
                domain = replace(domain, is_saved=self._has_saved_state(state.uuid))
        except HostDataError as failure:
            error = str(failure)
        return _CachedDocument(domain, error, self._monotonic(), fingerprint, _is_off(state))


def _is_off(state: DomainStatistics) -> bool:
    return state.values.get("state.state") == _OFF


def _fingerprint(values: Mapping[str, object]) -> tuple[object, ...]:
    """Return the statistics that change only when the document does."""
    keys = ["vcpu.current", "vcpu.maximum", "balloon.maximum", "block.count"]
    count = values.get("block.count", 0)
    if isinstance(count, int):
        numbers = range(min(count, len(values)))  # each has a name
        keys += [f"block.{number}.{part}" for number in numbers for part in ("name", "path")]
    return (*(values.get(key) for key in keys), *_list_plugged_vcpus(values))


def _list_plugged_vcpus(values: Mapping[str, object]) -> tuple[int, ...]:
    """Return the plugged vCPUs of a running guest that does not have all of them."""
    current, maximum = values.get("vcpu.current"), values.get("vcpu.maximum")
    if not isinstance(maximum, int) or current == maximum:
        return ()
    numbers = range(min(maximum, MAX_CPU_ID + 1))
    return tuple(number for number in numbers if f"vcpu.{number}.state" in values)


def build_guest(
    listed: ListedDomain,
    disk_bytes: int | None,
    problem: str,
    disks_elsewhere: Sequence[str],
    disks_shared: Mapping[str, Sequence[str]],
    topology: NumaTopology,
) -> Guest | PartialGuest:
    """Return a domain as a guest, partial if its document, disk or emulator cannot be read.

    Args:
        disk_bytes: capacity of its disks in the node's storage, None = unknown.
        problem: why its emulator does not answer, "" if it does.
        disks_elsewhere: targets of its disks that are not in the node's storage.
        disks_shared: target of a disk -> names of the other guests with its image.
    """
    domain, power_state = listed.domain, _power_state(listed.state.values)
    if domain is None:
        state = listed.state
        return PartialGuest(
            state.uuid, state.name, WorkloadKind.INSTANCE, power_state, problem=listed.error
        )
    known: dict[str, Any] = {
        "uuid": domain.uuid,
        "name": domain.name,
        "kind": WorkloadKind.INSTANCE,
        "power_state": power_state,
        "vcpu_milli": domain.vcpus * MILLI,
        "memory_mb": usage_mib_from_bytes(domain.memory_bytes),
        "disk_mb": None if disk_bytes is None else usage_mib_from_bytes(disk_bytes),
        "project_id": domain.project_id,
        "pins": derive_pins(domain, topology),
        "details": {**_details(domain, disks_elsewhere, disks_shared), **_describe_state(listed)},
    }
    problem = listed.error or problem
    is_partial = disk_bytes is None or bool(problem)
    return PartialGuest(**known, problem=problem) if is_partial else Guest(**known)


def build_starting(
    domain: Domain, topology: NumaTopology, resolver: UseResolver, capable: Collection[str]
) -> Guest:
    """Return a guest as it will be once it runs; its disks are not measured.

    Args:
        resolver, capable: see `bind_uses`.
    """
    running = DomainStatistics(domain.uuid, domain.name, {"state.state": _RUNNING})
    listed = ListedDomain(running, domain)
    guest = bind_uses(build_guest(listed, 0, "", (), {}, topology), listed, resolver, capable)
    assert isinstance(guest, Guest)
    return guest


def bind_uses(
    guest: Guest | PartialGuest,
    listed: ListedDomain,
    resolver: UseResolver,
    capable: Collection[str],
) -> Guest | PartialGuest:
    """Return a guest that is bound to what it uses of the host by other names than addresses.

    The parents of its mediated devices, functions of its interfaces, and device nodes. What
    a guest that is off would use may not exist; one that has crashed has an emulator still.
    """
    domain = listed.domain
    if domain is None or guest.pins is None:
        return guest
    uses = [use for uuid in domain.mdevs for use in resolver.resolve_mdev(uuid, capable)]
    uses += [use for name in domain.interfaces for use in resolver.resolve_interface(name)]
    uses += resolver.resolve_nodes(domain.nodes)
    pins = bind(guest.pins, uses)
    if guest.power_state is PowerState.SHUTDOWN:
        pins = replace(pins, unresolved=())
    return guest if pins == guest.pins else replace(guest, pins=pins)


def _power_state(values: Mapping[str, object]) -> PowerState:
    number, reason = values.get("state.state"), values.get("state.reason")
    if (number, reason) == _STARTING_UP:
        return PowerState.RUNNING
    return _POWER_STATES.get(number if isinstance(number, int) else 0, PowerState.NOSTATE)


def _describe_state(listed: ListedDomain) -> Mapping[str, Any]:
    values = listed.state.values
    is_arriving = (values.get("state.state"), values.get("state.reason")) == _MIGRATING
    return {ARRIVING: True} if is_arriving else {}


def _details(
    domain: Domain, disks_elsewhere: Sequence[str], disks_shared: Mapping[str, Sequence[str]]
) -> Mapping[str, Any]:
    """Return further data of a domain for operators; keys without a value are omitted."""
    details: dict[str, Any] = {}
    if domain.vcpus_max != domain.vcpus:
        details["vcpus_max"] = domain.vcpus_max
    if domain.is_saved:
        details["saved"] = True
    if domain.persistent_bytes:
        details["persistent_memory_mb"] = usage_mib_from_bytes(domain.persistent_bytes)
    if domain.modules:
        details["virtio_mem"] = [
            {
                "size_mb": usage_mib_from_bytes(module.size_bytes),
                "requested_mb": usage_mib_from_bytes(module.requested_bytes),
                "current_mb": usage_mib_from_bytes(module.current_bytes),
            }
            for module in domain.modules
        ]
    if domain.other_devices:
        details["host_devices"] = list(domain.other_devices)
    if disks_elsewhere:
        details["disks_elsewhere"] = list(disks_elsewhere)
    if disks_shared:
        details["disks_shared"] = {name: list(guests) for name, guests in disks_shared.items()}
    return details


def derive_pins(domain: Domain, topology: NumaTopology) -> GuestPins:
    """Return the cells, CPUs and devices to which a domain is bound.

    A vCPU that may run on only one host CPU is pinned to it; other sets that the
    domain names are affinities. Memory is in the cell that ``numatune`` names, or
    else in the cell of all the vCPUs; a cell with several page sizes has one
    assignment for each. Ordinary memory that may be in several cells is left out.

    Args:
        topology: the host's cells; without cells only devices are returned.
    """
    cell_of = {cpu: cell.id for cell in topology.cells for cpu in cell.cpus}
    pins: dict[int, dict[int, int]] = defaultdict(dict)
    named = dict.fromkeys(sorted(domain.helper_sets, key=sorted), 0)
    home, placed = set[int](), 0
    cells_of: dict[CpuSet, set[int]] = {}  # many vCPUs may have one large set
    for vcpu in sorted(set(range(domain.vcpus_max)) - domain.unplugged):
        cpus = domain.affinity.get(vcpu, frozenset())
        if cpus not in cells_of:
            cells_of[cpus] = {cell_of[cpu] for cpu in cpus if cpu in cell_of}
        cells = cells_of[cpus]
        if len(cells) == 1:
            home |= cells
            placed += 1
        if len(cpus) > 1:
            named[cpus] = named.get(cpus, 0) + MILLI
        elif cells:
            pins[min(cells)][vcpu] = min(cpus)
    affinities = tuple(CpuAffinity(cpus, milli) for cpus, milli in named.items() if topology.cells)
    parts = domain.memory or (MemoryPart(domain.memory_bytes),)
    is_memory_bound = any(part.host_cells is not None or part.page_kb for part in parts)
    if not (home or is_memory_bound):
        return GuestPins((), domain.devices, affinities=affinities)
    memory, loose = _place_memory(
        parts, topology, frozenset(home if placed == domain.vcpus else ())
    )
    assignments = [
        assignment
        for cell in sorted({*pins, *memory})
        for assignment in _place_in_cell(
            CellAssignment(host_cell=cell, pins=pins.get(cell, {})), memory.get(cell, {})
        )
    ]
    return GuestPins(tuple(assignments), domain.devices, pages=loose, affinities=affinities)


def _place_in_cell(
    cpus: CellAssignment, memory: Mapping[int | None, tuple[int, int]]
) -> Iterator[CellAssignment]:
    """Yield a cell's assignments: one for each page size, the first with the CPUs."""
    sizes = sorted(memory.items(), key=lambda item: item[0] or 0) or [(None, (0, 0))]
    for index, (page_kb, (size_bytes, pages)) in enumerate(sizes):
        assignment = cpus if index == 0 else CellAssignment(cpus.host_cell)
        yield replace(
            assignment,
            memory_mb=usage_mib_from_bytes(size_bytes),
            page_size_kb=page_kb,
            pages=pages,
        )


def _place_memory(
    parts: Iterable[MemoryPart], topology: NumaTopology, home: CpuSet
) -> tuple[dict[int, dict[int | None, tuple[int, int]]], tuple[LoosePages, ...]]:
    """Return the memory whose cell is certain, and the other huge pages.

    Returns:
        Host cell -> page size in KiB (None for ordinary memory) -> (bytes, pages); and the
        huge pages that may be in several cells.
    """
    known = {cell.id for cell in topology.cells}
    default_cells = frozenset(known) if len(known) == 1 else home
    found: dict[int, dict[int | None, tuple[int, int]]] = defaultdict(dict)
    loose: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for part in parts:
        cells = default_cells if part.host_cells is None else part.host_cells
        is_default = part.page_kb == DEFAULT_PAGE_KB
        page_kb = topology.default_page_kb if is_default else part.page_kb
        part_pages = -(-part.size_bytes // (page_kb * 1024)) if page_kb else 0
        if len(cells) == 1 and cells <= known:
            sizes = found[min(cells)]
            size_bytes, pages = sizes.get(page_kb, (0, 0))
            sizes[page_kb] = size_bytes + part.size_bytes, pages + part_pages
        elif page_kb and known:
            loose[page_kb, tuple(sorted(part.host_cells or ()))] += part_pages
    parts_of = (LoosePages(size, count, cells) for (size, cells), count in sorted(loose.items()))
    return dict(found), tuple(parts_of)
