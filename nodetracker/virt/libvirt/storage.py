"""Measure the node's disk, the filesystem or pool that guests share, and count their disks."""

import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Filesystem, StorageInfo
from nodetracker.model.units import capacity_mib_from_bytes, usage_mib_from_bytes
from nodetracker.virt.host.disk import is_on, read_storage
from nodetracker.virt.host.roots import Roots, describe_os_error
from nodetracker.virt.libvirt.ceph import measure_usable
from nodetracker.virt.libvirt.domain import Domain, DomainDisk
from nodetracker.virt.libvirt.types import LibvirtSettings, PoolInfo
from nodetracker.virt.libvirt.xml import parse_document

DiskKey = tuple[str, DomainDisk]
"""A guest's uuid and one of its disks; another image is another disk."""

_BLOCK_BYTES = 512
IMAGE_CACHE = "_base"
"""Directory below instances_path in which Nova keeps the base images of guests' disks."""

FILE_POOL_TYPES = frozenset({"dir", "fs", "netfs", "gluster", "vstorage"})
POOL_TYPES_BY_IMAGES_TYPE = {"lvm": frozenset({"logical"}), "rbd": frozenset({"rbd"})}
"""images_type -> types of libvirt's pools for such images; all other types are kept as files."""


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
        problem: why its size is unknown, "" if no reason is known.
        shared_with: names of the other guests that have the same image.
        is_counted: False when the image is counted as a disk of another guest.
    """

    uuid: str
    owner: str
    device: DomainDisk
    sizes: DiskSizes = DiskSizes()
    problem: str = ""
    shared_with: tuple[str, ...] = ()
    is_counted: bool = True

    @property
    def key(self) -> DiskKey:
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


@dataclass(frozen=True, slots=True)
class NodeStorage:
    """The node's disk as read.

    Attributes:
        scope: which guests' disks are in it.
        problems: (guest/disk, why it could not be measured), each a warning.
    """

    info: StorageInfo
    scope: StorageScope
    problems: tuple[tuple[str, str], ...] = ()


def read_local_storage(
    path: Path,
    roots: Roots,
    disks: Sequence[GuestDisk],
    images_type: str | None,
    reserve_image_cache: bool,
) -> NodeStorage:
    """Return this machine's filesystem on which guests' disks are kept below a path."""
    info = read_storage(path, roots)
    if reserve_image_cache:
        cache_mb = measure_image_cache(path / IMAGE_CACHE, info.instances, roots)
        info = replace(info, reserved_mb=info.reserved_mb + cache_mb)
    return add_overcommit(NodeStorage(info, StorageScope(images_type)), disks, roots)


def read_pool_storage(
    pools: Sequence[PoolInfo], disks: Sequence[GuestDisk], settings: LibvirtSettings, source: str
) -> NodeStorage:
    """Return the storage pool that holds guests' disks.

    Raises:
        HostDataError: no active pool has the right type, or a Ceph pool cannot be measured.
    """
    pool = choose_pool(pools, disks, settings.images_type, source)
    if settings.images_type == "rbd":
        usable = measure_usable(pool.info, pool.scope.source, settings.ceph)
        pool = replace(pool, info=usable)
    return add_overcommit(pool, disks)


def add_overcommit(
    storage: NodeStorage, disks: Sequence[GuestDisk], roots: Roots | None = None
) -> NodeStorage:
    """Add up the space by which the disks of all guests may still grow.

    Files on this machine are inspected, as sparse files use less space than
    their size; files on another filesystem are left out. Block devices and
    other volumes do not use the filesystem.

    Args:
        roots: of this machine; None = the storage is another machine's.
    """
    total = 0
    problems, unknown = [], []
    elsewhere = set()
    for disk in disks:
        path, capacity, taken = disk.device.path, disk.sizes.capacity, disk.sizes.allocation
        if not disk.is_file:
            if capacity is None and storage.scope.contains(disk):
                unknown.append((disk.item, disk.unknown_size))
            continue
        if roots is not None and path:
            try:
                found = Path(path).stat()
                is_here = is_on(Path(path), storage.info.instances, roots)
            except OSError as error:
                problems.append((disk.item, f"{path}: {describe_os_error(error)}"))
                continue
            if not is_here:
                elsewhere.add((disk.uuid, disk.device.target))
                continue
            taken = found.st_blocks * _BLOCK_BYTES
        if capacity is None:
            problems.append((disk.item, disk.unknown_size))
        elif disk.is_counted:
            total += max(0, capacity - (taken or 0))
    return NodeStorage(
        replace(storage.info, overcommitted_mb=usage_mib_from_bytes(total)),
        replace(storage.scope, elsewhere=frozenset(elsewhere)),
        (*problems, *unknown),
    )


def measure_image_cache(directory: Path, filesystem: Filesystem, roots: Roots) -> int:
    """Return the MiB that an image cache uses, 0 if it is missing or on another filesystem."""
    try:
        if not is_on(directory, filesystem, roots):
            return 0
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise HostDataError(str(directory), describe_os_error(error)) from error
    total = 0
    for name in names:
        with suppress(FileNotFoundError):  # an image that was just deleted
            found = (directory / name).lstat()
            total += found.st_blocks * _BLOCK_BYTES if stat.S_ISREG(found.st_mode) else 0
    return usage_mib_from_bytes(total)


def choose_pool(
    pools: Sequence[PoolInfo], disks: Sequence[GuestDisk], images_type: str | None, source: str
) -> NodeStorage:
    """Return the pool in which guests' disks are kept.

    Of the pools whose type matches, it is the one with most of the guests'
    disks, then the one called ``default``, then the first by name.

    Raises:
        HostDataError: no active pool has the right type.
    """
    pool_types = POOL_TYPES_BY_IMAGES_TYPE.get(images_type or "", FILE_POOL_TYPES)
    documents = {pool.name: parse_document(pool.xml, "pool", source) for pool in pools}
    candidates = sorted(
        (pool for pool in pools if documents[pool.name].get("type") in pool_types),
        key=lambda pool: pool.name,
    )
    if not candidates:
        raise HostDataError(
            source, f"has no active storage pool of type {' or '.join(sorted(pool_types))}"
        )
    targets = {pool.name: documents[pool.name].findtext("target/path") or "" for pool in candidates}
    uses: Counter[str] = Counter()
    for disk in disks:
        parents = {str(parent) for parent in PurePosixPath(disk.device.path).parents}
        uses.update(name for name, target in targets.items() if target and target in parents)
    pool = max(candidates, key=lambda pool: (uses[pool.name], pool.name == "default"))
    used = pool.capacity_bytes - pool.available_bytes
    filesystem = Filesystem(
        path=targets[pool.name],
        total_mb=capacity_mib_from_bytes(pool.capacity_bytes),
        used_mb=usage_mib_from_bytes(max(0, used)),
        available_mb=capacity_mib_from_bytes(pool.available_bytes),
        device=pool.name,
        fs_type=documents[pool.name].get("type", ""),
    )
    source_name = documents[pool.name].findtext("source/name") or ""
    group = source_name or PurePosixPath(targets[pool.name]).name
    return NodeStorage(StorageInfo(filesystem), StorageScope(images_type, pool.name, group))


def parse_disk_sizes(values: Mapping[str, object]) -> dict[str, DiskSizes]:
    """Return target -> sizes of the disks whose capacity is reported."""
    found = {}
    count = values.get("block.count", 0)
    for number in range(min(count, len(values)) if isinstance(count, int) else 0):
        prefix = f"block.{number}."
        name, capacity = values.get(prefix + "name"), values.get(prefix + "capacity")
        if not isinstance(name, str) or not isinstance(capacity, int) or capacity < 0:
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
    """Return the disks of a domain that are charged to it."""
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


def find_shared(disks: Sequence[GuestDisk]) -> list[GuestDisk]:
    """Return the disks; of those that share an image, one is counted.

    It is the disk of the guest with the lowest uuid whose size is known.
    """
    by_image: dict[tuple[str, ...], list[GuestDisk]] = {}
    for disk in disks:
        if disk.device.image:
            by_image.setdefault(disk.device.image, []).append(disk)
    shared = []
    for disk in disks:
        same = by_image.get(disk.device.image, [disk])
        counted = min(same, key=lambda one: (one.sizes.capacity is None, one.uuid, one.item))
        others = tuple(sorted({one.owner for one in same if one.uuid != disk.uuid}))
        shared.append(replace(disk, shared_with=others, is_counted=disk is counted))
    return shared


def list_shared(disks: Iterable[GuestDisk]) -> dict[str, dict[str, list[str]]]:
    """Return guest's uuid -> target of a disk -> other guests with its image."""
    found: dict[str, dict[str, list[str]]] = {}
    for disk in disks:
        if disk.shared_with:
            found.setdefault(disk.uuid, {})[disk.device.target] = list(disk.shared_with)
    return found


def sum_capacities(disks: Iterable[GuestDisk], scope: StorageScope) -> dict[str, int | None]:
    """Return guest's uuid -> capacity of its disks in the storage, in bytes.

    None = unknown, as that of one of them is; guests without such disks are left out.
    """
    totals: dict[str, int | None] = {}
    for disk in disks:
        if disk.is_counted and scope.contains(disk):
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


def _is_in_group(path: str, group: str) -> bool:
    """Return whether the path of a block device is that of a volume of a volume group.

    The device mapper doubles hyphens of a name: ``/dev/mapper/my--group-web``.
    """
    mapped = f"/dev/mapper/{group.replace('-', '--')}-"
    is_mapped = path.startswith(mapped) and not path.startswith(f"{mapped}-")
    return is_mapped or path.startswith(f"/dev/{group}/")
