"""Sizes of guests' disks, and which of them are in the node's storage."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodetracker.virt.libvirt.domain import Domain


@dataclass(frozen=True, slots=True)
class DiskSizes:
    """Sizes of one disk from bulk statistics, in bytes; None = not reported.

    Attributes:
        capacity: the size that the guest sees.
        allocation: the space used on the host, as far as the hypervisor knows.
    """

    capacity: int | None = None
    allocation: int | None = None


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """One writable disk of a guest, in whatever storage it is.

    Attributes:
        owner: the guest's name, for messages.
        sizes: last known sizes; unknown when the file is missing.
        uuid: the guest's uuid.
        kind, protocol, pool: see `DomainDisk`.
    """

    owner: str
    target: str
    kind: str
    path: str
    sizes: DiskSizes
    uuid: str = ""
    protocol: str = ""
    pool: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is a file, on a filesystem or in a pool of files."""
        return self.kind in {"file", "volume"}


@dataclass(frozen=True, slots=True)
class StorageScope:
    """The storage whose capacity is the node's disk; only disks in it count as usage.

    Attributes:
        images_type: how guests' disks are stored, None = as files.
        pool: libvirt's storage pool, "" while unknown.
        source: the pool's volume group or Ceph pool, "" while unknown.
        elsewhere: (guest's uuid, target) of files that are on another filesystem.
    """

    images_type: str | None = None
    pool: str = ""
    source: str = ""
    elsewhere: frozenset[tuple[str, str]] = frozenset()

    def contains(self, disk: GuestDisk) -> bool:
        """Return whether a disk is in this storage; while the pool is unknown, by its kind."""
        if self.images_type not in {"lvm", "rbd"}:
            return disk.is_file and (disk.uuid, disk.target) not in self.elsewhere
        if disk.kind == "volume":
            return self.pool in {"", disk.pool}
        if self.images_type == "rbd":
            is_ceph = disk.kind == "network" and disk.protocol == "rbd"
            return is_ceph and self.source in {"", disk.pool}
        is_known = bool(self.source)
        return disk.kind == "block" and (not is_known or _is_in_group(disk.path, self.source))


def _is_in_group(path: str, group: str) -> bool:
    """Return whether the path of a block device is that of a volume of a volume group.

    The device mapper doubles hyphens of a name: ``/dev/mapper/my--group-web``.
    """
    mapped = f"/dev/mapper/{group.replace('-', '--')}-"
    is_mapped = path.startswith(mapped) and not path.startswith(f"{mapped}-")
    return is_mapped or path.startswith(f"/dev/{group}/")


def sum_capacities(disks: Iterable[GuestDisk], scope: StorageScope) -> Counter[str]:
    """Return guest's uuid -> capacity of its disks in the storage, in bytes."""
    total: Counter[str] = Counter()
    for disk in disks:
        if scope.contains(disk):
            total[disk.uuid] += disk.sizes.capacity or 0
    return total


def list_disks_elsewhere(disks: Iterable[GuestDisk], scope: StorageScope) -> dict[str, list[str]]:
    """Return guest's uuid -> targets of its disks outside the storage, which are not charged."""
    found: dict[str, list[str]] = {}
    for disk in disks:
        if not scope.contains(disk):
            found.setdefault(disk.uuid, []).append(disk.target)
    return found


def parse_disk_sizes(values: Mapping[str, object]) -> dict[str, DiskSizes]:
    """Return target -> sizes of the disks whose capacity is reported."""
    found = {}
    count = values.get("block.count", 0)
    for number in range(count if isinstance(count, int) else 0):
        prefix = f"block.{number}."
        name, capacity = values.get(prefix + "name"), values.get(prefix + "capacity")
        if not isinstance(name, str) or not isinstance(capacity, int):
            continue
        # A running guest's allocation counts only its own writes; the file itself is more exact.
        parts = [values.get(prefix + part) for part in ("allocation", "physical")]
        used = [part for part in parts if isinstance(part, int) and part > 0]
        found[name] = DiskSizes(capacity, min(used) if used else 0)
    return found


def list_disks(domain: Domain, sizes: Mapping[str, DiskSizes]) -> list[GuestDisk]:
    """Return the disks of a domain that are charged to it, with their last known sizes."""
    return [
        GuestDisk(
            domain.name,
            disk.target,
            disk.kind,
            disk.path,
            sizes.get(disk.target, DiskSizes()),
            domain.uuid,
            disk.protocol,
            disk.pool,
        )
        for disk in domain.disks
        if disk.is_charged
    ]
