"""Hardware and identity of a machine, and its hypervisor or container engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class HostProblem:
    """A file of the host that cannot be used, and what is lost; becomes a warning.

    Attributes:
        path: the file, directory or device.
        text: why, and what is done without it; the same in each audit.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """Online CPUs on which the kernel runs no guests, or none that is not pinned to them.

    Attributes:
        path: the file that names them.
        allows_pins: guests that are pinned to them run there.
    """

    path: str
    cpus: CpuSet
    allows_pins: bool = False


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """The processors of a host.

    Attributes:
        online: ids that the kernel schedules on.
        offline: ids that are present but offline.
        sockets: physical packages with at least one online CPU.
        cores: physical cores with at least one online CPU, of the whole host.
        threads: maximum number of online threads of a core.
        siblings: online CPUs grouped by core, ascending by the group's first id.
        socket_of: online CPU id -> physical package id, where known.
        architecture: machine as in ``uname -m``, e.g. ``x86_64``.
        model, vendor: as in ``/proc/cpuinfo``, "" when unknown.
        flags: features in ascending order.
        limits: CPUs on which guests do not run although they are online.
        problems: files that could not be used.
    """

    online: CpuSet
    offline: CpuSet = frozenset()
    sockets: int = 1
    cores: int = 1
    threads: int = 1
    siblings: tuple[CpuSet, ...] = ()
    socket_of: Mapping[int, int] = field(default_factory=dict)
    architecture: str = ""
    model: str = ""
    vendor: str = ""
    flags: tuple[str, ...] = ()
    limits: tuple[CpuLimit, ...] = ()
    problems: tuple[HostProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """The memory of a host in MiB, as the kernel sees it (not a cgroup's limit).

    Attributes:
        total_mb: MemTotal.
        available_mb: MemAvailable, estimated from free memory and caches on
            kernels without it; None when neither is known.
        swap_total_mb, swap_free_mb: swap space.
        problems: the file, if some of its amounts could not be used.
    """

    total_mb: int
    available_mb: int | None
    swap_total_mb: int = 0
    swap_free_mb: int = 0
    problems: tuple[HostProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """One whole disk, not a partition, loop or RAM device."""

    name: str
    size_mb: int
    model: str = ""
    serial: str = ""
    is_rotational: bool = False
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Filesystem:
    """The filesystem that holds guests' disks, measured at `path`.

    Attributes:
        path: the existing directory that was measured: the requested one or
            its nearest existing parent.
        total_mb, used_mb, available_mb: MiB; available is the space left for
            unprivileged writers.
        unusable_mb: space that would be available if the filesystem were not read-only or
            out of inodes.
        device, fs_type: as in mountinfo, "" when not found.
        device_id: st_dev of `path`; equal ids mean the same filesystem.
    """

    path: str
    total_mb: int
    used_mb: int
    available_mb: int
    device: str = ""
    fs_type: str = ""
    device_id: int = 0
    unusable_mb: int = 0


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """The filesystem of guests' disks, and the block devices of the host.

    Attributes:
        overcommitted_mb: MiB by which guests' disks there may still grow.
        reserved_mb: MiB of `instances` that the driver uses for other purposes
            than guests, e.g. images, or that nobody can use; they count as used.
        further: another filesystem that guests write to, None if there is none.
        problems: files that could not be used.
    """

    instances: Filesystem
    disks: tuple[Disk, ...] = ()
    overcommitted_mb: int = 0
    reserved_mb: int = 0
    further: Filesystem | None = None
    problems: tuple[HostProblem, ...] = ()

    @property
    def available_mb(self) -> int:
        """MiB that are left for guests, on the filesystem that has less."""
        left = self.instances.available_mb - self.overcommitted_mb
        return left if self.further is None else min(left, self.further.available_mb)


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface that is a device, e.g. a port of a network card.

    Attributes:
        address: of its PCI function, None for a device of another bus.
        driver: "" when unknown.
        speed_mbps: of its link in Mbit/s, None while it is down or unknown.
    """

    name: str
    address: str | None = None
    driver: str = ""
    speed_mbps: int | None = None


@dataclass(frozen=True, slots=True)
class CpuCache:
    """Equal caches of the processors.

    Attributes:
        kind: ``data``, ``instruction`` or ``unified``.
        size_kb: of each one, in KiB.
        count: how many there are in the machine.
    """

    level: int
    kind: str
    size_kb: int
    count: int


@dataclass(frozen=True, slots=True)
class SystemInfo:
    """The machine's identity and system software.

    Attributes:
        hostname: the kernel's node name.
        os_type: ``linux``.
        os: distribution and version, e.g. ``Debian GNU/Linux 12 (bookworm)``.
        kernel_version: release, e.g. ``6.1.0-18-amd64``.
        boot_id: the kernel's random id of this boot, None when unreadable.
        booted_at: when it booted (UTC, whole seconds), None when unknown.
        vendor, product, product_version, serial, uuid: DMI identity, "" where
            unknown or not readable.
        firmware_version: of the BIOS or UEFI firmware as DMI has it, "" when unknown.
        nics: network interfaces with a device, without virtual functions, ordered by name.
        caches: of the online CPUs, ordered by level, kind and size.
        problems: files that could not be used.
    """

    hostname: str
    os_type: str
    os: str
    kernel_version: str
    boot_id: str | None = None
    booted_at: datetime | None = None
    vendor: str = ""
    product: str = ""
    product_version: str = ""
    serial: str = ""
    uuid: str = ""
    firmware_version: str = ""
    nics: tuple[Nic, ...] = ()
    caches: tuple[CpuCache, ...] = ()
    problems: tuple[HostProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        address: its PCI address.
        uuid, driver_version: from NVML, "" without it.
        mig_uuids: of the MIG devices into which it is divided.
        problem: why it is not offered: its driver does not answer for it, or nothing can compute
            on it; "" otherwise.
    """

    address: str
    vendor: str
    name: str
    memory_mb: int = 0
    uuid: str = ""
    driver_version: str = ""
    numa_node: int | None = None
    mig_uuids: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_silent(self) -> bool:
        """Whether its driver does not answer for it."""
        return bool(self.problem) and not self.uuid


@dataclass(frozen=True, slots=True)
class HypervisorInfo:
    """The hypervisor of a node.

    Attributes:
        type: e.g. ``QEMU``, ``docker``, ``fake``, ``local``.
        version: 1,000,000 x major + 1,000 x minor + micro, as in Nova.
        supported_instances: (architecture, hypervisor type, vm mode) triples.
    """

    type: str
    version: int = 0
    supported_instances: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """The properties of a container engine that matter to workloads and operators.

    Attributes:
        name: the engine, e.g. ``docker`` or ``podman``.
        version, api_version: as reported by it, e.g. ``20.10.24+dfsg1``, ``1.41``.
        labels: arbitrary labels that the operator configured for the daemon.
        runtimes: names of the available container runtimes, ascending.
        default_runtime: the runtime used by default.
        storage_driver: e.g. ``overlay2``.
        root_dir: directory of its volumes, and of images and containers unless they are in
            `image_store_dir`.
        image_store_dir: directory of images and containers in a store of containerd, ""
            without one.
        cgroup_version: ``1`` or ``2``, "" when unknown.
        cgroup_driver: ``cgroupfs`` or ``systemd``, "" when unknown.
        has_disk_quotas: whether a container's disk usage can currently be limited.
    """

    name: str
    version: str = ""
    api_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    storage_driver: str = ""
    root_dir: str = ""
    image_store_dir: str = ""
    cgroup_version: str = ""
    cgroup_driver: str = ""
    has_disk_quotas: bool = False
