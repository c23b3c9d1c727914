"""Read the facts of a local hypervisor's node that are this machine's own files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodetracker.host.cache import CacheReader
from nodetracker.host.gpu import read_gpus
from nodetracker.host.pci import read_pci_devices
from nodetracker.host.system import read_system_info
from nodetracker.model.errors import DriverUnavailableError
from nodetracker.model.fact import Fact
from nodetracker.model.host import Gpu, SystemInfo
from nodetracker.model.node import HostSnapshot, failed_snapshot
from nodetracker.model.pci import PciDevice
from nodetracker.virt.libvirt.disks import GuestDisk
from nodetracker.virt.libvirt.node_facts import map_fact
from nodetracker.virt.libvirt.storage import (
    POOL_TYPES_BY_IMAGES_TYPE,
    NodeStorage,
    read_local_storage,
)
from nodetracker.virt.libvirt.types import LibvirtSettings
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """Probes of this machine, which do not depend on its hypervisor."""

    environment: DriverEnvironment
    settings: LibvirtSettings
    caches: CacheReader = field(default_factory=CacheReader)

    @property
    def has_storage(self) -> bool:
        """Whether the node's disk is a filesystem, not a storage pool."""
        return self.settings.images_type not in POOL_TYPES_BY_IMAGES_TYPE

    def start_system(self, nodename: str) -> Pending[SystemInfo]:
        """Start to read the system's names and boot."""
        roots = self.environment.roots
        key = ProbeKey(f"{roots.procfs}/sys/kernel", nodename, "system")
        return self.environment.probes.start(key, lambda: read_system_info(roots, self.caches))

    def probe_storage(self, nodename: str, disks: Sequence[GuestDisk]) -> Fact[NodeStorage]:
        """Return the filesystem of guests' disks."""
        path, roots = Path(self.environment.instances_path), self.environment.roots
        images_type, has_cache = self.settings.images_type, self.settings.reserve_image_cache
        return self.environment.probes.run(
            ProbeKey(str(path), nodename, "storage"),
            lambda: read_local_storage(path, roots, disks, images_type, has_cache),
        )

    def probe_gpus(self, nodename: str, pci: Fact[tuple[PciDevice, ...]]) -> Fact[tuple[Gpu, ...]]:
        """Return the GPUs.

        Args:
            pci: the PCI functions; if they failed, this machine's are read.
        """
        roots, functions = self.environment.roots, pci.value
        return self.environment.probes.run(
            ProbeKey("NVML", nodename, "gpus"),
            lambda: read_gpus(
                roots, read_pci_devices(roots).value if functions is None else functions
            ),
        )

    def read_without_hypervisor(
        self, nodename: str, error: DriverUnavailableError, disks: Sequence[GuestDisk] | None
    ) -> HostSnapshot:
        """Return a node whose hypervisor does not answer: only this machine's facts are fresh.

        Args:
            disks: as last known; None = never read, so that the storage cannot be evaluated.
        """
        snapshot = failed_snapshot(nodename, error.source, error.reason)
        system = self.start_system(nodename)
        if disks is not None and self.has_storage:
            storage = self.probe_storage(nodename, disks)
            snapshot = replace(snapshot, storage=map_fact(storage, lambda value: value.info))
        gpus = self.probe_gpus(nodename, snapshot.pci)
        return replace(snapshot, gpus=gpus, system=system.fact())
