"""Read the host's GPUs from PCI, with details of NVIDIA's from NVML."""

import importlib
from collections.abc import Sequence
from typing import Any

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Gpu
from nodetracker.model.pci import PciDevice, PciDeviceType, address_key
from nodetracker.model.units import capacity_mib_from_bytes
from nodetracker.virt.host.pci import parse_pci_address
from nodetracker.virt.host.roots import Roots, is_this_machine, path_exists

_NVIDIA = "10de"
_VENDORS = {_NVIDIA: "NVIDIA", "1002": "AMD", "8086": "Intel"}
_VGA = "0300"
_COMPUTE_CLASSES = frozenset({"0302", "0380"})  # 3D and other display controllers
_ACCELERATORS = frozenset({("1002", "1200")})  # AMD Instinct since MI300
_DOMAIN_DIGITS = 4


def parse_nvml_address(text: str) -> str:
    """Convert a bus id of NVML to the format of sysfs.

    >>> parse_nvml_address("00000000:5E:00.0"), parse_nvml_address("00010000:E1:00.0")
    ('0000:5e:00.0', '10000:e1:00.0')
    """
    domain, _, rest = parse_pci_address(text, "NVML").partition(":")
    return f"{int(domain, 16):0{_DOMAIN_DIGITS}x}:{rest}"


def is_gpu(device: PciDevice) -> bool:
    """Return whether a PCI function is a GPU that is useful to guests.

    A VGA function counts only when its vendor makes GPUs: those of servers'
    management controllers and of virtual machines only draw a console. A
    virtual function is a share of a GPU, not a separate one.
    """
    if device.dev_type is PciDeviceType.VF:
        return False
    kind = device.class_id[:4]
    return (
        kind in _COMPUTE_CLASSES
        or (kind == _VGA and device.vendor_id in _VENDORS)
        or (device.vendor_id, kind) in _ACCELERATORS
    )


def read_gpus(roots: Roots, pci: Sequence[PciDevice], nvml: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs of the host in ascending address.

    Without NVIDIA's library or driver, or for a device that does not respond,
    only data from PCI is returned; the name is then the vendor and product id.

    Args:
        roots: directories to read from. NVML queries this machine's driver, so
            it is used only when they belong to this machine.
        nvml: the library. None: ``pynvml``, if it is installed and an NVIDIA
            device exists.
    """
    gpus = {device.address: _describe(device) for device in pci if is_gpu(device)}
    if nvml is None and _has_nvidia(roots, pci):
        nvml = _load_nvml()
    if nvml is not None:
        numa_node_of = {device.address: device.numa_node for device in pci}
        for gpu in _read_nvml(nvml, numa_node_of):
            gpus[gpu.address] = gpu
    return tuple(gpus[address] for address in sorted(gpus, key=address_key))


def _describe(device: PciDevice) -> Gpu:
    return Gpu(
        address=device.address,
        vendor=_VENDORS.get(device.vendor_id, device.vendor_id),
        name=f"{device.vendor_id}:{device.product_id}",
        numa_node=device.numa_node,
    )


def _has_nvidia(roots: Roots, pci: Sequence[PciDevice]) -> bool:
    """Return whether to load the library: a container may see only the device node."""
    if not is_this_machine(roots):
        return False
    return path_exists(roots.rootfs / "dev/nvidiactl") or any(
        device.vendor_id == _NVIDIA and is_gpu(device) for device in pci
    )


def _load_nvml() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _read_nvml(nvml: Any, numa_node_of: dict[str, int | None]) -> list[Gpu]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or no permission
        return []
    try:
        driver_version = _as_text(nvml.nvmlSystemGetDriverVersion())
        read = (
            _read_nvml_device(nvml, index, driver_version, numa_node_of)
            for index in range(nvml.nvmlDeviceGetCount())
        )
        return [gpu for gpu in read if gpu is not None]
    except nvml.NVMLError:
        return []
    finally:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # the results are valid all the same


def _read_nvml_device(
    nvml: Any, index: int, driver_version: str, numa_node_of: dict[str, int | None]
) -> Gpu | None:
    """Return one device, None when it has fallen off the bus or its data is malformed."""
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
    """Return a string of the library, which older releases return as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
