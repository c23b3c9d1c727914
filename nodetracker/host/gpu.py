"""GPUs of the host: PCI says which there are, NVML what NVIDIA's are."""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, cast

from nodetracker.errors import HostDataError
from nodetracker.host.pci import parse_pci_address
from nodetracker.host.roots import Roots, is_there, is_this_machine
from nodetracker.model.host import Gpu
from nodetracker.model.pci import PciDevice, PciDeviceType
from nodetracker.units import capacity_mib_from_bytes

_NVIDIA = "10de"
_VENDORS = {_NVIDIA: "NVIDIA", "1002": "AMD", "8086": "Intel"}
_VGA = "0300"
_COMPUTE_CLASSES = frozenset({"0302", "0380"})  # 3D and other display controllers
_ACCELERATORS = frozenset({("1002", "1200")})  # AMD Instinct since MI300
_DOMAIN_DIGITS = 4


class Nvml(Protocol):
    """The part of NVIDIA's ``pynvml`` module that is used here."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:  # noqa: N802 the library's names
        """Open the library; calls are counted against `nvmlShutdown`."""

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Close the library."""

    def nvmlSystemGetDriverVersion(self) -> str | bytes:  # noqa: N802
        """Return the driver's version."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Return how many devices there are."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        """Return a handle of the device in this position."""

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:  # noqa: N802
        """Return a structure with ``busId``."""

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        """Return the product's name."""

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:  # noqa: N802
        """Return the device's uuid, which NVIDIA's tools take too."""

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:  # noqa: N802
        """Return a structure with ``total`` in bytes."""


def parse_nvml_address(text: str) -> str:
    """Return a bus id of NVML as sysfs writes the address.

    Raises:
        HostDataError: it is no address.

    >>> parse_nvml_address("00000000:5E:00.0"), parse_nvml_address("00010000:E1:00.0")
    ('0000:5e:00.0', '10000:e1:00.0')
    """
    domain, _, rest = parse_pci_address(text, "NVML").partition(":")
    return f"{int(domain, 16):0{_DOMAIN_DIGITS}x}:{rest}"


def is_gpu(device: PciDevice) -> bool:
    """Tell whether a function is a GPU that guests may want.

    A VGA function counts when its vendor makes GPUs: servers' management
    controllers and virtual machines have one that only draws a console. A
    virtual function is a share of a GPU and not another one.
    """
    if device.dev_type is PciDeviceType.VF:
        return False
    kind = device.class_id[:4]
    return (
        kind in _COMPUTE_CLASSES
        or (kind == _VGA and device.vendor_id in _VENDORS)
        or (device.vendor_id, kind) in _ACCELERATORS
    )


def read_gpus(roots: Roots, pci: Sequence[PciDevice], nvml: Nvml | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs of the host in ascending address.

    Without NVIDIA's library or driver, or with a device that does not answer,
    what PCI knows stands alone: the name is the vendor's and product's id.

    Args:
        roots: where the files are; NVML asks this machine's driver and so is
            asked only when they show this machine.
        pci: the functions of the same reading.
        nvml: the library; None: ``pynvml``, if it is installed and there is
            an NVIDIA device.
    """
    gpus = {device.address: _describe(device) for device in pci if is_gpu(device)}
    if nvml is None and _has_nvidia(roots, pci):
        nvml = _load_nvml()
    if nvml is not None:
        numa_node_of = {device.address: device.numa_node for device in pci}
        for gpu in _ask_nvml(nvml, numa_node_of):
            gpus[gpu.address] = gpu
    return tuple(sorted(gpus.values(), key=_sort_key))


def _sort_key(gpu: Gpu) -> tuple[int, str]:
    domain, _, rest = gpu.address.partition(":")
    return int(domain, 16), rest


def _describe(device: PciDevice) -> Gpu:
    return Gpu(
        address=device.address,
        vendor=_VENDORS.get(device.vendor_id, device.vendor_id),
        name=f"{device.vendor_id}:{device.product_id}",
        numa_node=device.numa_node,
    )


def _has_nvidia(roots: Roots, pci: Sequence[PciDevice]) -> bool:
    """Tell whether it is worth loading the library: a container may see the device node alone."""
    if not is_this_machine(roots):
        return False
    return is_there(roots.rootfs / "dev/nvidiactl") or any(
        device.vendor_id == _NVIDIA and is_gpu(device) for device in pci
    )


def _load_nvml() -> Nvml | None:
    try:
        return cast("Nvml", importlib.import_module("pynvml"))
    except ImportError:
        return None


def _ask_nvml(nvml: Nvml, numa_node_of: dict[str, int | None]) -> list[Gpu]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or not for us
        return []
    try:
        driver_version = _as_text(nvml.nvmlSystemGetDriverVersion())
        gpus = []
        for index in range(nvml.nvmlDeviceGetCount()):
            gpu = _ask_device(nvml, index, driver_version, numa_node_of)
            if gpu is not None:
                gpus.append(gpu)
        return gpus
    except nvml.NVMLError:
        return []
    finally:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # the answers stand


def _ask_device(
    nvml: Nvml, index: int, driver_version: str, numa_node_of: dict[str, int | None]
) -> Gpu | None:
    """Return one device, None when it has fallen off the bus or its answers make no sense."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        address = parse_nvml_address(_as_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        name = _as_text(nvml.nvmlDeviceGetName(handle))
        uuid = _as_text(nvml.nvmlDeviceGetUUID(handle))
    except (nvml.NVMLError, HostDataError):
        return None
    try:
        memory_mb = capacity_mib_from_bytes(int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
    except nvml.NVMLError:  # not supported where GPU and CPU share their memory
        memory_mb = 0
    return Gpu(
        address=address,
        vendor=_VENDORS[_NVIDIA],
        name=name,
        memory_mb=memory_mb,
        uuid=uuid,
        driver_version=driver_version,
        numa_node=numa_node_of.get(address),
    )


def _as_text(value: str | bytes) -> str:
    """Return a string of the library, which older releases give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
