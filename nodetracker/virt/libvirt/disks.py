"""Sizes of guests' disks, and which of them are in the node's storage."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodetracker.virt.libvirt.domain import Domain, DomainDisk

DiskKey = tuple[str, DomainDisk]
"""A guest's uuid and one of its disks; another image is another disk."""


@dataclass(frozen=True, slots=True)
class DiskSizes:
    """Sizes of one disk in bytes; None = unknown.

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
        uuid, owner: the guest's uuid, and its name for messages.
        sizes: last known sizes.
        problem: why its size is unknown, "" if no reason is known.
    """

    uuid: str
    owner: str
    device: DomainDisk
    sizes: DiskSizes = DiskSizes()
    problem: str = ""

    @property
    def key(self) -> DiskKey:
        """The identity of the disk."""
        return (self.uuid, self.device)

    @property
    def item(self) -> str:
        """The guest and the disk, as warnings name them."""
        return f"{self.owner}/{self.device.target}"

    @property
    def is_file(self) -> bool:
        """Whether it is a file, on a filesystem or in a pool of files."""
        return self.device.kind in {"file", "volume"}

    @property
    def unknown_size(self) -> str:
        """The message that its size is unknown, with its place and the reason."""
        device = self.device
        place = f"volume {device.volume} of pool {device.pool}" if device.volume else device.path
        return ": ".join(filter(None, (place, "its size is unknown", self.problem)))


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
            return disk.is_file and (disk.uuid, disk.device.target) not in self.elsewhere
        device = disk.device
        if device.kind == "volume":
            return self.pool in {"", device.pool}
        if self.images_type == "rbd":
            is_ceph = device.kind == "network" and device.protocol == "rbd"
            return is_ceph and self.source in {"", device.pool}
        is_known = bool(self.source)
        return device.kind == "block" and (not is_known or _is_in_group(device.path, self.source))


def _is_in_group(path: str, group: str) -> bool:
    """Return whether the path of a block device is that of a volume of a volume group.

    The device mapper doubles hyphens of a name: ``/dev/mapper/my--group-web``.
    """
    mapped = f"/dev/mapper/{group.replace('-', '--')}-"
    is_mapped = path.startswith(mapped) and not path.startswith(f"{mapped}-")
    return is_mapped or path.startswith(f"/dev/{group}/")


def sum_capacities(disks: Iterable[GuestDisk], scope: StorageScope) -> dict[str, int | None]:
    """Return guest's uuid -> capacity of its disks in the storage, in bytes.

    None = unknown, as that of one of them is; guests without such disks are left out.
    """
    totals: dict[str, int | None] = {}
    for disk in disks:
        if scope.contains(disk):
            total, capacity = totals.get(disk.uuid, 0), disk.sizes.capacity
            totals[disk.uuid] = None if total is None or capacity is None else total + capacity
    return totals


def list_disks_elsewhere(disks: Iterable[GuestDisk], scope: StorageScope) -> dict[str, list[str]]:
    """Return guest's uuid -> targets of its disks outside the storage, which are not charged."""
    found: dict[str, list[str]] = {}
    for disk in disks:
        if not scope.contains(disk):
            found.setdefault(disk.uuid, []).append(disk.device.target)
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


def list_disks(
    domain: Domain,
    sizes: Mapping[DiskKey, DiskSizes] | None = None,
    problems: Mapping[DiskKey, str] | None = None,
) -> list[GuestDisk]:
    """Return the disks of a domain that are charged to it.

    Args:
        sizes: last known sizes.
        problems: why sizes are unknown.
    """
    unknown = DiskSizes()
    return [
        GuestDisk(
            domain.uuid,
            domain.name,
            disk,
            (sizes or {}).get((domain.uuid, disk), unknown),
            (problems or {}).get((domain.uuid, disk), ""),
        )
        for disk in domain.disks
        if disk.is_charged
    ]
