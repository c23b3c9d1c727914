"""Guests' disks: how large they are, and which of them lie in the node's storage."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodetracker.virt.libvirt.domain import Domain


@dataclass(frozen=True, slots=True)
class DiskSizes:
    """What statistics tell of one disk, in bytes; None = not told.

    Attributes:
        capacity: that the guest sees.
        allocation: that is taken on the host, as far as the hypervisor knows.
    """

    capacity: int | None = None
    allocation: int | None = None


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """One disk that guests were promised, wherever it is kept.

    Attributes:
        owner: the guest's name, for messages.
        sizes: as last known; a missing file has none.
        uuid: the guest's.
        protocol, pool: see `DomainDisk`.
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
        """Whether it is kept as a file, on a filesystem or in a pool of files."""
        return self.kind in {"file", "volume"}


@dataclass(frozen=True, slots=True)
class StorageScope:
    """The storage whose capacity is the node's: only disks in it are charged.

    Attributes:
        images_type: how guests' disks are kept, None = as files.
        pool: libvirt's storage pool, "" while it is not known.
        source: the pool's volume group or Ceph pool, "" while it is not known.
        elsewhere: (guest's uuid, target) of files that are on another filesystem.
    """

    images_type: str | None = None
    pool: str = ""
    source: str = ""
    elsewhere: frozenset[tuple[str, str]] = frozenset()

    def contains(self, disk: GuestDisk) -> bool:
        """Tell whether a disk lies there; without a known pool its kind decides."""
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
    """Tell by its path whether a block device is a volume of a volume group.

    The device mapper writes hyphens of a name twice: ``/dev/mapper/my--group-web``.
    """
    mapped = f"/dev/mapper/{group.replace('-', '--')}-"
    is_mapped = path.startswith(mapped) and not path.startswith(f"{mapped}-")
    return is_mapped or path.startswith(f"/dev/{group}/")


def sum_capacities(disks: Iterable[GuestDisk], scope: StorageScope) -> Counter[str]:
    """Return guest's uuid -> bytes that its disks there may hold."""
    total: Counter[str] = Counter()
    for disk in disks:
        if scope.contains(disk):
            total[disk.uuid] += disk.sizes.capacity or 0
    return total


def list_disks_elsewhere(disks: Iterable[GuestDisk], scope: StorageScope) -> dict[str, list[str]]:
    """Return guest's uuid -> targets of its disks that are not there, so that nothing is charged.

    Args:
        scope: as `StorageScope.contains`.
    """
    found: dict[str, list[str]] = {}
    for disk in disks:
        if not scope.contains(disk):
            found.setdefault(disk.uuid, []).append(disk.target)
    return found


def parse_disk_sizes(values: Mapping[str, object]) -> dict[str, DiskSizes]:
    """Return target -> sizes, of the disks of which the capacity is told."""
    found = {}
    count = values.get("block.count", 0)
    for number in range(count if isinstance(count, int) else 0):
        prefix = f"block.{number}."
        name, capacity = values.get(prefix + "name"), values.get(prefix + "capacity")
        if not isinstance(name, str) or not isinstance(capacity, int):
            continue
        # A running guest's allocation is only what it wrote; the file tells more.
        parts = [values.get(prefix + part) for part in ("allocation", "physical")]
        taken = [part for part in parts if isinstance(part, int) and part > 0]
        found[name] = DiskSizes(capacity, min(taken) if taken else 0)
    return found


def list_disks(domain: Domain, sizes: Mapping[str, DiskSizes]) -> list[GuestDisk]:
    """Return the disks that a domain was promised, with what is known of them."""
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
