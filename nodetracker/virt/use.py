"""Resolve what a guest uses of its host, by whatever name, to PCI functions.

The one place for it, for all drivers. A resolver returns `Resolved`, `Absent` (the name means
no PCI function) or an `UnresolvedUse`, never an empty set for a name that it
does not know; `bind` makes pins of such answers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from nodetracker.model.guest import GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.host import Gpu
from nodetracker.model.pci import (
    ADDRESS_PATTERN,
    UNKNOWN_DRIVER,
    PciDevice,
    PciDeviceType,
    address_key,
)
from nodetracker.virt.device_nodes import CLASS_DIRECTORIES, DeviceNodes
from nodetracker.virt.host.gpu import AMD, INTEL, NVIDIA

ALL = "all"
"""Name of all GPUs of a vendor."""

_INDEX = re.compile("[0-9]{1,9}")
_NVIDIA_NODE = re.compile(r"/dev/nvidia([0-9]{1,4})")
_DRI = "/dev/dri"
_DRI_NODE = re.compile(r"/dev/dri/((?:card|controlD|render[A-Z])[0-9]{1,7})")
_DRI_PATH = re.compile(rf"/dev/dri/by-path/pci-({ADDRESS_PATTERN.pattern})-(?:card|render)")
_KFD = "/dev/kfd"
_VFIO_GROUP = re.compile(r"/dev/vfio/(?:noiommu-)?([0-9]{1,9})")
_VFIO_DEVICE = re.compile(r"/dev/vfio/devices/(vfio[0-9]{1,9})")
_VDPA_NODE = re.compile(r"/dev/(vhost-vdpa-[0-9]{1,9})")
_CLASS_NODES = (
    (re.compile(r"(/dev/nvme[0-9]{1,9})(?:n[0-9]{1,9}(?:p[0-9]{1,9})?)?"), "nvme", "class:01"),
    (re.compile(r"(/dev/infiniband/uverbs[0-9]{1,9})"), "infiniband_verbs", "class:02"),
    (re.compile(r"(/dev/accel/accel[0-9]{1,9})"), "accel", "class:12"),
)
"""Nodes of functions that guests share: path, directory of ``/sys/class``, class of functions."""

_ACCELERATORS = (
    (re.compile(r"/dev/apex_[0-9]{1,4}"), "1ac1:089a"),  # Coral
    (re.compile(r"/dev/(?:davinci|hl)[0-9]{1,4}"), "class:12"),  # Ascend, Gaudi
    (re.compile(r"/dev/neuron[0-9]{1,4}"), "vendor:1d0f"),  # Inferentia, Trainium
    (re.compile(r"/dev/hailo[0-9]{1,4}"), "vendor:1e60"),
    (re.compile(r"/dev/tenstorrent/[0-9]{1,4}"), "vendor:1e52"),
    (re.compile(r"/dev/cambricon_dev[0-9]{1,4}"), "vendor:cabc"),
    (re.compile(r"/dev/iluvatar[0-9]{1,4}"), "vendor:1e3e"),
    (re.compile(r"/dev/disk/by-[a-z]+/nvme-.+"), "class:01"),
)
"""Nodes that may be of such functions where neither their name nor ``/sys`` says of which."""

_BY_PATH = re.compile(rf"/dev/(?:.+/)?by-path/pci-({ADDRESS_PATTERN.pattern})-.+")

_DIRECTORIES = frozenset({"/dev", _DRI, "/dev/vfio", *CLASS_DIRECTORIES.values()})
_NETWORK = "class:02"
_CDI_NAME = re.compile(r"([A-Za-z0-9._-]+)/([A-Za-z0-9._-]+)=(.+)")
_GPU_CLASSES = frozenset({"gpu", "mig"})
_VENDOR_DOMAINS = {"nvidia": NVIDIA, "amd": AMD, "intel": INTEL}
_ACCELERATOR_DOMAINS = {"habana": "class:12", "huawei": "class:12"}
_DRIVERS = {NVIDIA: ("nvidia",), AMD: ("amdgpu",), INTEL: ("i915", "xe")}
_MIG_PARENT = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/[0-9]+/[0-9]+")
_NO_LIBRARY = (
    "NVIDIA's library reports no uuids of GPUs; check its driver, and that nodetracker[gpu] is "
    "installed"
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """PCI functions that a guest uses."""

    addresses: frozenset[str]


@dataclass(frozen=True, slots=True)
class Absent:
    """It is known that a name means no PCI function of the host."""


Use = Resolved | Absent | UnresolvedUse
ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class UseResolver:
    """Resolves names to the functions of one host.

    Attributes:
        functions: all of the host.
        gpus: as last known.
    """

    functions: Sequence[PciDevice] = ()
    gpus: Sequence[Gpu] = ()
    nodes: DeviceNodes = field(default_factory=DeviceNodes)

    def resolve_nodes(self, paths: Iterable[str]) -> list[Use]:
        """Resolve the device nodes, or CDI names, that a container gets."""
        paths = tuple(node for path in paths for node in self._list_below(path.rstrip("/")))
        has_dri = any(path == _DRI or path.startswith(f"{_DRI}/") for path in paths)
        found: list[Use] = []
        for path in paths:
            if path == _KFD and has_dri:  # it gives access to GPUs whose nodes the guest has
                continue
            use = self.resolve_node(path)
            if isinstance(use, UnresolvedUse) and _KFD in paths and not use.within:
                use = replace(use, within=AMD) if use.kind is ResourceKind.GPU else use
            found.append(use)
        return found

    def _list_below(self, path: str) -> list[str]:
        """Return the known device nodes in a directory that a guest gets whole, else the path."""
        if path not in _DIRECTORIES:
            return [path]
        passed = {device.iommu_group for device in self.functions if "vfio" in device.driver}
        known = [
            *(f"/dev/nvidia{minor}" for minor in self.nodes.nvidia),
            *(f"{_DRI}/{name}" for name in self.nodes.drm),
            *(f"/dev/vfio/{group}" for group in passed if group is not None),
            *(f"/dev/{name}" for name in self.nodes.vdpa),
            *self.nodes.nodes,
        ]
        return [node for node in known if node.startswith(f"{path}/")] or [path]

    def resolve_node(self, path: str) -> Use:
        """Resolve one device node of the host, or one CDI name."""
        path = path.rstrip("/")
        if not path.startswith("/"):
            return self.resolve_gpu(path) if _CDI_NAME.fullmatch(path) else ABSENT
        if match := _NVIDIA_NODE.fullmatch(path):
            return self._resolve_minor(path, int(match[1]))
        if match := _DRI_NODE.fullmatch(path):
            return self._resolve_drm(path, match[1])
        if match := _DRI_PATH.fullmatch(path):
            return Resolved(frozenset({match[1]}))
        if path in (_DRI, f"{_DRI}/by-path"):
            return self._resolve_dri()
        if path == _KFD:
            return self._all_of(AMD)
        if match := _VFIO_GROUP.fullmatch(path):
            return self._resolve_group(path, int(match[1]))
        if match := _VFIO_DEVICE.fullmatch(path):
            address = self.nodes.vfio.get(match[1])
            reason = self._explain("vfio", f"{match[1]} is not in /sys/class/vfio-dev")
            return (
                UnresolvedUse(ResourceKind.PCI, path, reason)
                if address is None
                else Resolved(frozenset({address}))
            )
        if match := _VDPA_NODE.fullmatch(path):
            return self._resolve_vdpa(path, match[1])
        for pattern, directory, kind in _CLASS_NODES:
            if match := pattern.fullmatch(path):
                if match[1] in self.nodes.nodes:
                    return self._share(path, self.nodes.nodes[match[1]])
                name = PurePath(match[1]).name
                reason = self._explain("nodes", f"{name} is not in /sys/class/{directory}")
                return UnresolvedUse(ResourceKind.PCI, path, reason, kind)
        if path in _DIRECTORIES and "nodes" in self.nodes.problems:
            return UnresolvedUse(ResourceKind.PCI, path, self.nodes.problems["nodes"])
        return self._resolve_other(path)

    def _resolve_other(self, path: str) -> Use:
        """Resolve a device node of a driver that is not known here."""
        match = _BY_PATH.fullmatch(path)
        address = match[1] if match else self.nodes.nodes.get(path)
        if address is not None:
            return self._share(path, address)
        for pattern, within in _ACCELERATORS:
            if pattern.fullmatch(path):
                reason = self._explain("nodes", "nothing in /sys/class says whose node it is")
                return UnresolvedUse(ResourceKind.PCI, path, reason, within)
        return ABSENT

    def resolve_interface(self, name: str) -> list[Use]:
        """Resolve a network interface over which a guest has one of its own (macvtap).

        A virtual function is the guest's alone. Others are shared: they are not given away
        whole, and their virtual functions stay free.
        """
        addresses = self.nodes.netdevs.get(name)
        if addresses is None:
            reason = self._explain("net", "the host has no such network interface")
            return [UnresolvedUse(ResourceKind.PCI, name, reason, _NETWORK)]
        return [self._share(name, address) for address in sorted(addresses)]

    def _is_of_type(self, address: str, dev_type: PciDeviceType) -> bool:
        return any(
            device.address == address and device.dev_type is dev_type for device in self.functions
        )

    def _share(self, name: str, address: str | None) -> Use:
        """Return the use of a function by the driver of the host: a virtual one is not shared."""
        if address is None:
            return ABSENT
        if self._is_of_type(address, PciDeviceType.VF):
            return Resolved(frozenset({address}))
        reason = "the guest uses it by the driver of the host"
        return UnresolvedUse(ResourceKind.FUNCTION, name, reason, address)

    def _resolve_vdpa(self, path: str, name: str) -> Use:
        address = self.nodes.vdpa.get(name)
        if address is not None:  # of a subfunction the PF
            is_pf = self._is_of_type(address, PciDeviceType.PF)
            return self._share(path, address) if is_pf else Resolved(frozenset({address}))
        reason = self._explain("vdpa", f"{name} is not in /sys/bus/vdpa/devices")
        return UnresolvedUse(ResourceKind.PCI, path, reason, _NETWORK)

    def resolve_mdev(self, uuid: str, capable: Iterable[str]) -> list[Use]:
        """Resolve a mediated device to its parent.

        Args:
            capable: addresses of the functions that have mediated devices; without the parent
                it may be of any of these.
        """
        parent = self.nodes.mdevs.get(uuid)
        if parent is not None:
            return [Resolved(frozenset({parent}))]
        reason = self._explain("mdev", "it is not in /sys/bus/mdev/devices of this host")
        name = f"mdev {uuid}"
        return [
            UnresolvedUse(ResourceKind.PCI, name, reason, address)
            for address in sorted(capable) or [""]
        ]

    def resolve_gpu(self, name: str) -> Use:
        """Resolve a GPU, or a part of one, as containers request it.

        Args:
            name: a qualified CDI name; or what NVIDIA's tools take: ``all``, a number, a uuid
                or its beginning, a MIG device as ``MIG-…``, ``MIG-GPU-…/gi/ci`` or ``0:1``.
        """
        match = _CDI_NAME.fullmatch(name)
        if match is None:
            vendors = {gpu.vendor for gpu in self.gpus}
            is_amd = NVIDIA not in vendors and AMD in vendors
            return self._resolve_name(AMD if is_amd else NVIDIA, name, name)
        if name in self.nodes.cdi:
            return self._merge(name, self.resolve_nodes(self.nodes.cdi[name]))
        domain = match[1].rpartition(".")[0].rpartition(".")[2]
        vendor = _VENDOR_DOMAINS.get(domain, "")
        if match[2] in _GPU_CLASSES:
            own = match[3].removeprefix("mig") if ":" in match[3] else match[3]
            return self._resolve_name(vendor, own, name)
        reason = self._explain("cdi", "no specification in /etc/cdi or /var/run/cdi has it")
        within = _ACCELERATOR_DOMAINS.get(domain, "")
        return UnresolvedUse(ResourceKind.PCI, name, reason, within)

    def _resolve_name(self, vendor: str, name: str, shown: str) -> Use:
        if name == ALL:
            return self._all_of(vendor)
        if vendor == NVIDIA:
            return self._resolve_nvidia(name, shown)
        if name in self.nodes.drm:
            return self._resolve_drm(shown, name)
        own = self._list_bound(vendor)
        if len(own) == 1:
            return Resolved(frozenset(own))
        reason = self._explain("cdi", "no specification in /etc/cdi or /var/run/cdi has it")
        return UnresolvedUse(ResourceKind.GPU, shown, reason, vendor)

    def _resolve_nvidia(self, name: str, shown: str) -> Use:
        bound = self._list_bound(NVIDIA)
        number = name.partition(":")[0]
        if ADDRESS_PATTERN.fullmatch(name.lower()):
            return Resolved(frozenset({name.lower()}))
        if _INDEX.fullmatch(number):
            if int(number) < len(bound):
                return Resolved(frozenset({bound[int(number)]}))
            reason = f"NVIDIA's driver has {len(bound)} GPUs"
            return UnresolvedUse(ResourceKind.GPU, shown, reason, NVIDIA)
        parent = _MIG_PARENT.fullmatch(name)
        wanted = parent[1] if parent else name
        uuids = [(gpu.address, uuid) for gpu in self.gpus for uuid in (gpu.uuid, *gpu.mig_uuids)]
        uuids += self.nodes.nvidia.values()
        matching = {address for address, uuid in uuids if uuid and uuid.startswith(wanted)}
        if wanted and len(matching) == 1:
            return Resolved(frozenset(matching))
        return UnresolvedUse(ResourceKind.GPU, shown, self._explain_uuid(matching), NVIDIA)

    def _explain_uuid(self, matching: set[str]) -> str:
        problems = [gpu.problem for gpu in self.gpus if gpu.is_silent]
        if matching:
            return "several GPUs have such uuids"
        if problems:
            return problems[0]
        if not any(gpu.uuid for gpu in self.gpus) and not self.nodes.nvidia:
            return _NO_LIBRARY
        return "no GPU of NVIDIA's driver has this uuid"

    def _resolve_minor(self, path: str, minor: int) -> Use:
        found = self.nodes.nvidia.get(minor)
        if found is not None:
            return Resolved(frozenset({found[0]}))
        bound = self._list_bound(NVIDIA)
        if len(bound) == 1:
            return Resolved(frozenset(bound))
        reason = self._explain("nvidia", "no GPU of /proc/driver/nvidia/gpus has this minor number")
        return UnresolvedUse(ResourceKind.GPU, path, reason, NVIDIA)

    def _resolve_drm(self, path: str, name: str) -> Use:
        if name in self.nodes.drm:
            address = self.nodes.drm[name]
            return ABSENT if address is None else Resolved(frozenset({address}))
        reason = self._explain("drm", f"{name} is not in /sys/class/drm")
        return UnresolvedUse(ResourceKind.GPU, path, reason)

    def _resolve_dri(self) -> Use:
        known = {address for address in self.nodes.drm.values() if address is not None}
        if known:
            return Resolved(frozenset(known))
        if not self.gpus:
            return ABSENT
        reason = self._explain("drm", "/sys/class/drm has no GPU")
        return UnresolvedUse(ResourceKind.GPU, _DRI, reason)

    def _resolve_group(self, path: str, group: int) -> Use:
        members = {device.address for device in self.functions if device.iommu_group == group}
        if members:
            return Resolved(frozenset(members))
        reason = "no PCI function is in this IOMMU group"
        return UnresolvedUse(ResourceKind.PCI, path, reason)

    def _all_of(self, vendor: str) -> Use:
        found = self._list_bound(vendor)
        return Resolved(frozenset(found)) if found else ABSENT

    def _list_bound(self, vendor: str) -> list[str]:
        """Return a vendor's GPUs that its driver has, as the driver numbers them.

        It leaves out those of other drivers, such as ``vfio-pci``. A GPU whose function
        is not visible, in a container, is one of the driver's.
        """
        driver_of = {device.address: device.driver for device in self.functions}
        drivers = (*_DRIVERS.get(vendor, ()), UNKNOWN_DRIVER)
        found = [
            gpu.address
            for gpu in self.gpus
            if vendor in ("", gpu.vendor)
            and (vendor not in _DRIVERS or driver_of.get(gpu.address, drivers[0]) in drivers)
        ]
        return sorted(found, key=address_key)

    def _merge(self, name: str, uses: Iterable[Use]) -> Use:
        """Return what a CDI name is by its device nodes."""
        addresses: set[str] = set()
        for use in uses:
            if isinstance(use, UnresolvedUse):
                return replace(use, name=f"{name} ({use.name})")
            if isinstance(use, Resolved):
                addresses |= use.addresses
        return Resolved(frozenset(addresses)) if addresses else ABSENT

    def _explain(self, source: str, otherwise: str) -> str:
        return self.nodes.problems.get(source, otherwise)


def bind(pins: GuestPins, uses: Iterable[Use]) -> GuestPins:
    """Return pins with what a guest uses in addition."""
    addresses = set(pins.devices)
    unresolved = dict.fromkeys(pins.unresolved)
    for use in uses:
        if isinstance(use, Resolved):
            addresses |= use.addresses
        elif isinstance(use, UnresolvedUse):
            unresolved[use] = None
    return replace(pins, devices=tuple(sorted(addresses)), unresolved=tuple(unresolved))
