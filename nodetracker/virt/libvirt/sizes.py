"""Read the sizes of guests' disks: from bulk statistics, else guest by guest.

Bulk statistics lack the sizes of a guest whose emulator is busy: it starts, or
another client queries it, or it hangs. A size that is not known from earlier
statistics is then read from the image or queried from the storage pool, and the
emulator of a running guest is queried separately. So a guest that has just
started is not without disks, and one whose emulator hangs is named.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nodetracker.model.errors import HostDataError
from nodetracker.virt.host.roots import describe_os_error
from nodetracker.virt.libvirt.connection import BulkClients
from nodetracker.virt.libvirt.domain import Domain
from nodetracker.virt.libvirt.guests import ListedDomain
from nodetracker.virt.libvirt.storage import (
    DiskKey,
    DiskSizes,
    GuestDisk,
    StorageScope,
    find_shared,
    list_disks,
    parse_disk_sizes,
)
from nodetracker.virt.libvirt.types import DomainStatistics
from nodetracker.virt.probes import Pending, ProbeKey, ProbeRunner

_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_SIZE = slice(24, 32)
KNOWN_SECONDS = 600.0
"""Age at which a size that bulk statistics do not report any more is queried again."""

MAX_QUERIED_GUESTS = 4
"""How many guests are queried concurrently, so how many of these calls may hang in libvirtd."""

_TIMEOUT_SECONDS = 2.0
_SILENT_TIMEOUT_SECONDS = 0.2
"""For a guest that did not answer the last time, so that it does not delay every reading."""
# Source: libvirt's virDomainState.
_PAUSED = 3
ACTIVE_STATES = frozenset({1, 2, _PAUSED, 4, 7})


@dataclass(frozen=True, slots=True)
class _KnownSizes:
    sizes: DiskSizes
    expires_at: float


@dataclass(frozen=True, slots=True)
class _Measured:
    """Sizes that were found without the guests, and reasons for those that were not."""

    sizes: dict[DiskKey, DiskSizes] = field(default_factory=dict)
    problems: dict[DiskKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SizeReading:
    """The charged disks of all guests, with their last known sizes.

    Attributes:
        silent: guest's uuid -> message, for guests whose emulators do not answer.
    """

    disks: tuple[GuestDisk, ...]
    silent: Mapping[str, str] = field(default_factory=dict)


class DiskSizeReader:
    """Reads and remembers the sizes of the disks of one session's guests.

    Args:
        get_volume_sizes: returns the sizes of a volume, by the names of its pool and itself.
        clients: opens connections on which guests are queried separately.
    """

    def __init__(
        self,
        source: str,
        is_local: bool,
        get_volume_sizes: Callable[[str, str], DiskSizes],
        clients: BulkClients,
        probes: ProbeRunner,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._is_local = is_local
        self._get_volume_sizes = get_volume_sizes
        self._clients = clients
        self._probes = probes
        self._monotonic = monotonic
        self._known: dict[DiskKey, _KnownSizes] = {}
        self._silent: Mapping[str, str] = {}
        self._is_stale = False

    def refresh(self) -> None:
        """Let the next reading forget all sizes."""
        self._is_stale = True

    def read(
        self,
        nodename: str,
        listed: Sequence[ListedDomain],
        bulk: Sequence[DomainStatistics] | None,
        scope: StorageScope,
    ) -> SizeReading:
        """Return the disks of all domains that have a document, with their sizes.

        Args:
            bulk: bulk statistics, None when they could not be read; then no
                emulator is queried.
            scope: sizes of disks outside it are not queried.
        """
        domains = [entry.domain for entry in listed if entry.domain is not None]
        self._update(domains, bulk or ())
        problems = self._measure(nodename, self._list_unknown(domains, scope))
        if bulk is not None:
            self._silent = self._query_guests(nodename, domains, bulk, scope)
        silent = {} if bulk is None else self._silent
        return SizeReading(tuple(find_shared(self._list(domains, problems))), silent)

    def _update(self, domains: Iterable[Domain], bulk: Iterable[DomainStatistics]) -> None:
        """Remember reported sizes; forget those of other disks, and those of long ago."""
        if self._is_stale:
            self._is_stale, self._known = False, {}
        now = self._monotonic()
        reported = {item.uuid: parse_disk_sizes(item.values) for item in bulk}
        before, self._known = self._known, {}
        for domain in domains:
            sizes = reported.get(domain.uuid, {})
            for disk in list_disks(domain):
                if disk.device.target in sizes:
                    self._known[disk.key] = _KnownSizes(
                        sizes[disk.device.target], now + KNOWN_SECONDS
                    )
                elif disk.key in before and before[disk.key].expires_at > now:
                    self._known[disk.key] = before[disk.key]

    def _remember(self, sizes: Mapping[DiskKey, DiskSizes]) -> None:
        expires_at = self._monotonic() + KNOWN_SECONDS
        self._known |= {key: _KnownSizes(value, expires_at) for key, value in sizes.items()}

    def _list(
        self, domains: Iterable[Domain], problems: Mapping[DiskKey, str] | None = None
    ) -> list[GuestDisk]:
        sizes = {key: known.sizes for key, known in self._known.items()}
        return [disk for domain in domains for disk in list_disks(domain, sizes, problems or {})]

    def _list_unknown(self, domains: Iterable[Domain], scope: StorageScope) -> list[GuestDisk]:
        return [
            disk
            for disk in self._list(domains)
            if disk.sizes.capacity is None and scope.contains(disk)
        ]

    # Without the guest.

    def _measure(self, nodename: str, unknown: Sequence[GuestDisk]) -> Mapping[DiskKey, str]:
        """Read images and query pools; return why sizes of their disks remain unknown."""
        images = [disk for disk in unknown if self._is_local and disk.device.path]
        volumes = [disk for disk in unknown if disk.device.kind == "volume"]
        found = _Measured()
        if images:
            key = ProbeKey("disk images", nodename, "images")
            found = self._probes.run(key, partial(_read_each, images, _read_image)).value or found
        self._remember(found.sizes)
        if not volumes:
            return found.problems
        key = ProbeKey(self._source, nodename, "volumes")
        fact = self._probes.run(key, partial(_read_each, volumes, self._read_volume))
        if fact.value is None:
            return found.problems | dict.fromkeys((disk.key for disk in volumes), fact.error or "")
        self._remember(fact.value.sizes)
        return found.problems | fact.value.problems

    def _read_volume(self, disk: GuestDisk) -> DiskSizes | None:
        return self._get_volume_sizes(disk.device.pool, disk.device.volume)

    # From the guest's emulator.

    def _query_guests(
        self,
        nodename: str,
        domains: Iterable[Domain],
        bulk: Iterable[DomainStatistics],
        scope: StorageScope,
    ) -> Mapping[str, str]:
        """Query guests that bulk statistics passed over; return those that do not answer."""
        statistics = {item.uuid: item.values for item in bulk}
        unknown = {disk.uuid for disk in self._list_unknown(domains, scope)}
        waiting = [
            (domain, disks)
            for domain in domains
            if (disks := [disk for disk in list_disks(domain) if scope.contains(disk)])
            and _has_to_be_queried(statistics.get(domain.uuid), domain.uuid in unknown)
        ]
        silent: dict[str, str] = {}
        while waiting and not silent:
            queried, waiting = waiting[:MAX_QUERIED_GUESTS], waiting[MAX_QUERIED_GUESTS:]
            pending = [
                (domain, self._start_query(nodename, domain, disks)) for domain, disks in queried
            ]
            for domain, query in pending:
                fact = query.fact()
                self._remember(fact.value or {})
                if fact.value is None:
                    error = "its emulator does not answer" if query.call.is_hung else fact.error
                    silent[domain.uuid] = f"domain {domain.name}: {error}"
        return silent | {
            domain.uuid: f"domain {domain.name}: not queried while other guests do not answer"
            for domain, _ in waiting
            if domain.uuid in unknown
        }

    def _timeout_of(self, domain: Domain) -> float:
        if domain.uuid in self._silent:
            return _SILENT_TIMEOUT_SECONDS
        return min(_TIMEOUT_SECONDS, self._probes.timeout_seconds / 2)

    def _start_query(
        self, nodename: str, domain: Domain, disks: Sequence[GuestDisk]
    ) -> Pending[Mapping[DiskKey, DiskSizes]]:
        key = ProbeKey(f"domain {domain.name}", nodename, "disks")
        return self._probes.start(
            key, lambda: self._query_guest(domain.uuid, disks), self._timeout_of(domain)
        )

    def _query_guest(self, uuid: str, disks: Sequence[GuestDisk]) -> Mapping[DiskKey, DiskSizes]:
        client = self._clients.open()
        try:
            sizes = client.get_disk_sizes(uuid, [disk.device.target for disk in disks])
        finally:
            client.close()
        return {
            disk.key: sizes[disk.device.target] for disk in disks if disk.device.target in sizes
        }


def _read_each(
    disks: Iterable[GuestDisk], read: Callable[[GuestDisk], DiskSizes | None]
) -> _Measured:
    found = _Measured()
    for disk in disks:
        try:
            sizes = read(disk)
        except HostDataError as error:
            found.problems[disk.key] = error.reason
        else:
            if sizes is not None:
                found.sizes[disk.key] = sizes
    return found


def _read_image(disk: GuestDisk) -> DiskSizes | None:
    capacity = read_image_capacity(Path(disk.device.path), disk.device.format)
    return None if capacity is None else DiskSizes(capacity)


def _has_to_be_queried(values: Mapping[str, object] | None, has_unknown: bool) -> bool:
    """Return whether bulk statistics passed over a guest whose emulator has to be queried.

    Without a free emulator they have a disk's name only. A paused guest may be
    one that starts or arrives by a migration.

    Args:
        values: its statistics, None if it was created after them.
        has_unknown: the size of one of its disks is not known.
    """
    if values is None:
        return has_unknown
    count, state = values.get("block.count"), values.get("state.state")
    if not isinstance(count, int) or state not in ACTIVE_STATES:
        return False
    numbers = range(min(count, len(values)))
    answered = {f"block.{n}.{part}" for n in numbers for part in ("capacity", "rd.reqs")}
    if not count or answered & values.keys():
        return False
    return has_unknown or state != _PAUSED


def read_image_capacity(path: Path, image_format: str) -> int | None:
    """Return the size in bytes that a guest sees, None for a format that is not known.

    The format is that of the guest's document: a guest may write any header
    into a raw image.

    Raises:
        HostDataError: the image cannot be read, or has no valid header.

    Source: QEMU's docs/interop/qcow2.txt.
    """
    if image_format not in {"raw", "qcow2"}:
        return None
    try:
        with path.open("rb", buffering=0) as file:
            if image_format == "qcow2":
                return _parse_qcow2(file.read(_QCOW2_SIZE.stop), path)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.seek(0, os.SEEK_END)  # a block device
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error


def _parse_qcow2(header: bytes, path: Path) -> int:
    if not header.startswith(_QCOW2_MAGIC) or len(header) < _QCOW2_SIZE.stop:
        raise HostDataError(str(path), "has no qcow2 header")
    return int.from_bytes(header[_QCOW2_SIZE], "big")
