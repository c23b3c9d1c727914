"""Build the listing of a node's guests from states, documents and bulk statistics.

A document is cached and read again only after an event for its domain, when
bulk statistics show that it has changed, or when it is ten minutes old. So a
listing needs a fixed number of round trips.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodetracker.errors import HostDataError
from nodetracker.model.guest import Guest, GuestListing, PowerState, WorkloadKind
from nodetracker.units import MILLI, usage_mib_from_bytes
from nodetracker.virt.libvirt.disks import (
    DiskSizes,
    GuestDisk,
    StorageScope,
    list_disks,
    parse_disk_sizes,
    sum_capacities,
)
from nodetracker.virt.libvirt.domain import Domain, parse_domain
from nodetracker.virt.libvirt.types import DomainStatistics

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
_STARTING_UP = (3, 11)
"""State and reason of a guest whose emulator waits for libvirt to start it: it is not paused."""


@dataclass(frozen=True, slots=True)
class GuestReading:
    """One listing, with the data from which disk usage and pins are derived.

    Attributes:
        listing: the disk usage of guests counts all disks in the node's storage.
        domains: parsed documents by uuid.
    """

    listing: GuestListing
    disks: tuple[GuestDisk, ...]
    domains: Mapping[str, Domain]


@dataclass(frozen=True, slots=True)
class _CachedDocument:
    """A document as last read: the parsed domain or the error, and the statistics at that time."""

    domain: Domain | None
    error: str
    read_at: float
    fingerprint: tuple[object, ...] | None = None


class GuestReader:
    """Reads guests and caches the documents of one connection's domains between listings.

    Args:
        read_xml: returns a domain's document, None when the domain does not exist any more.
        monotonic: monotonic clock, in seconds.
        scope: decides which disks are in the node's storage.
    """

    def __init__(
        self,
        read_xml: Callable[[str], str | None],
        monotonic: Callable[[], float] = time.monotonic,
        scope: StorageScope | None = None,
    ) -> None:
        self._read_xml = read_xml
        self._monotonic = monotonic
        self._scope = scope or StorageScope()
        self._lock = threading.Lock()
        self._documents: dict[str, _CachedDocument] = {}
        self._disks: dict[str, dict[str, DiskSizes]] = {}

    def read(
        self,
        states: Sequence[DomainStatistics],
        resources: Sequence[DomainStatistics] | None,
        changed: Iterable[str],
    ) -> GuestReading:
        """Build the listing; read the documents that are missing or out of date.

        Args:
            states: every domain, with its state.
            resources: bulk statistics, None when they could not be read. The
                last known disk sizes are used then, and a guest with a disk of
                unknown size is unreadable instead of too small.
            changed: uuids of domains that had events.

        Raises:
            HostDataError: libvirt does not answer.
        """
        with self._lock:
            return self._read(states, resources, set(changed))

    def _read(
        self,
        states: Sequence[DomainStatistics],
        resources: Sequence[DomainStatistics] | None,
        changed: set[str],
    ) -> GuestReading:
        known = {state.uuid for state in states}
        fingerprints = {item.uuid: _fingerprint(item.values) for item in resources or ()}
        self._documents = {uuid: entry for uuid, entry in self._documents.items() if uuid in known}
        self._disks = {uuid: disks for uuid, disks in self._disks.items() if uuid in known}
        for item in resources or ():
            self._disks.setdefault(item.uuid, {}).update(parse_disk_sizes(item.values))
        guests, unreadable, disks = [], [], []
        domains: dict[str, Domain] = {}
        for state in states:
            entry = self._get_document(state, fingerprints.get(state.uuid), state.uuid in changed)
            if entry is None:
                continue  # undefined since it was listed
            if entry.domain is None:
                unreadable.append(entry.error)
                continue
            domain = entry.domain
            own = list_disks(domain, self._disks.get(domain.uuid, {}))
            unknown = [
                disk.target
                for disk in own
                if disk.sizes.capacity is None and self._scope.contains(disk)
            ]
            if resources is None and unknown:
                unreadable.append(f"domain {domain.name}: the size of disk {unknown[0]} is unknown")
                continue
            domains[domain.uuid] = domain
            disks += own
            guests.append(_guest(domain, state, sum_capacities(own, self._scope)[domain.uuid]))
        listing = GuestListing(
            tuple(sorted(guests, key=lambda guest: guest.uuid)), tuple(unreadable)
        )
        return GuestReading(listing, tuple(disks), domains)

    def _get_document(
        self, state: DomainStatistics, fingerprint: tuple[object, ...] | None, has_changed: bool
    ) -> _CachedDocument | None:
        """Return a domain's document, from the cache while that is current."""
        entry = self._documents.get(state.uuid)
        now = self._monotonic()
        is_current = (
            entry is not None
            and not has_changed
            and now - entry.read_at < REREAD_SECONDS
            and (fingerprint is None or entry.fingerprint in {None, fingerprint})
        )
        if entry is not None and is_current:
            if entry.fingerprint is None and fingerprint is not None:
                entry = _CachedDocument(entry.domain, entry.error, entry.read_at, fingerprint)
                self._documents[state.uuid] = entry
            return entry
        text = self._read_xml(state.uuid)
        if text is None:
            return None
        domain, error = None, ""
        try:
            domain = parse_domain(text, f"domain {state.name}")
        except HostDataError as failure:
            error = str(failure)
        entry = self._documents[state.uuid] = _CachedDocument(domain, error, now, fingerprint)
        return entry


def _fingerprint(values: Mapping[str, object]) -> tuple[object, ...]:
    """Return the statistics that change only when the document does."""
    keys = ["vcpu.current", "vcpu.maximum", "balloon.maximum", "block.count"]
    count = values.get("block.count", 0)
    if isinstance(count, int):
        keys += [f"block.{number}.{part}" for number in range(count) for part in ("name", "path")]
    return (*(values.get(key) for key in keys), *_list_plugged_vcpus(values))


def _list_plugged_vcpus(values: Mapping[str, object]) -> tuple[int, ...]:
    """Return the plugged vCPUs of a running guest that does not have all of them."""
    current, maximum = values.get("vcpu.current"), values.get("vcpu.maximum")
    if not isinstance(maximum, int) or current == maximum:
        return ()
    return tuple(number for number in range(maximum) if f"vcpu.{number}.state" in values)


def _power_state(values: Mapping[str, object]) -> PowerState:
    number, reason = values.get("state.state"), values.get("state.reason")
    if (number, reason) == _STARTING_UP:
        return PowerState.RUNNING
    return _POWER_STATES.get(number if isinstance(number, int) else 0, PowerState.NOSTATE)


def _guest(domain: Domain, state: DomainStatistics, disk_bytes: int) -> Guest:
    return Guest(
        uuid=domain.uuid,
        name=domain.name,
        kind=WorkloadKind.INSTANCE,
        vcpu_milli=domain.vcpus * MILLI,
        memory_mb=usage_mib_from_bytes(domain.memory_bytes),
        disk_mb=usage_mib_from_bytes(disk_bytes),
        power_state=_power_state(state.values),
        project_id=domain.project_id,
        details=_details(domain),
    )


def _details(domain: Domain) -> Mapping[str, Any]:
    """Return further data of a domain for operators; keys without a value are omitted."""
    details: dict[str, Any] = {}
    if domain.vcpus_max != domain.vcpus:
        details["vcpus_max"] = domain.vcpus_max
    if domain.other_devices:
        details["host_devices"] = list(domain.other_devices)
    return details
