"""Read the host's GPUs from PCI, with details of NVIDIA's from NVML."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Gpu
from nodetracker.model.pci import PciDevice, PciDeviceType, address_key
from nodetracker.model.text import render_value
from nodetracker.model.units import capacity_mib_from_bytes
from nodetracker.virt.host.pci import parse_pci_address
from nodetracker.virt.host.roots import Roots, is_this_machine, path_exists

NVIDIA, AMD, INTEL = "NVIDIA", "AMD", "Intel"
_NVIDIA = "10de"
_VENDORS = {_NVIDIA: NVIDIA, "1002": AMD, "8086": INTEL}
_CONSOLE_CHIPS = {
    "1002": frozenset({  # Mach64, 3D Rage, Rage XL, RV100, RN50 (ES1000) and RS48x
        "4742", "4744", "4747", "4749", "474c", "474d", "474e", "474f", "4750", "4751", "4752",
        "4753", "4754", "4755", "4756", "4757", "4758", "4759", "475a", "4c47", "4c4d", "4c52",
        "5144", "5145", "5146", "5147", "5157", "5159", "515a", "515e", "5954", "5955", "5969",
        "5974", "5975", "5a61",
    }),
    "8086": frozenset({"7121", "7123", "7125", "7800", "8108", "8109"}),
    "10de": frozenset({
        "0020", "0028", "0029", "002c", "00a0", "0100", "0110", "0111", "0150", "0240", "0241",
        "0242", "0245",
    }),
}  # fmt: skip
"""Product ids of a vendor of GPUs that only draw a console."""

_CONSOLE_VENDORS = frozenset(
    {"1013", "1023", "102b", "1234", "126f", "1414", "15ad", "18ca", "1a03", "1af4", "1b36", "80ee"}
)
"""Vendors of management controllers and of virtual machines' displays."""

_NVIDIA_DRIVER = "nvidia"
_VGA = "0300"
_COMPUTE_CLASSES = frozenset({"0302", "0380"})  # 3D and other display controllers
_ACCELERATORS = frozenset({("1002", "1200")})  # AMD Instinct since MI300
_DOMAIN_DIGITS = 4
_MAX_GPUS = 4096
_NO_PARTS = "is in MIG mode without MIG devices, so nothing can compute on it"
_MAX_BYTES = 2**63 - 1


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
    management controllers and of virtual machines only draw a console, as do some
    old chips of these vendors. A virtual function is a share of a GPU, not a separate one.
    """
    if device.dev_type is PciDeviceType.VF or device.vendor_id in _CONSOLE_VENDORS:
        return False
    if device.product_id in _CONSOLE_CHIPS.get(device.vendor_id, ()):
        return False
    kind = device.class_id[:4]
    return (
        kind in _COMPUTE_CLASSES
        or (kind == _VGA and device.vendor_id in _VENDORS)
        or (device.vendor_id, kind) in _ACCELERATORS
    )


def read_gpus(roots: Roots, pci: Sequence[PciDevice], nvml: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs of the host in ascending address.

    Without NVIDIA's library or driver only data from PCI is returned; the name is then the
    vendor and product id. So it is of a device that does not respond, with `Gpu.problem`,
    which one in MIG mode without MIG devices has as well.

    Args:
        roots: directories to read from. NVML queries this machine's driver, so
            it is used only when they belong to this machine.
        nvml: the library. None: ``pynvml``, if it is installed and an NVIDIA
            device exists.

    Raises:
        HostDataError: the library fails and PCI shows no GPU.
    """
    gpus = {device.address: _describe(device) for device in pci if is_gpu(device)}
    if nvml is None and _has_nvidia(roots, pci):
        nvml = _load_nvml()
    if nvml is not None:
        numa_node_of = {device.address: device.numa_node for device in pci}
        answering, errors = _read_nvml(nvml, numa_node_of)
        gpus |= {gpu.address: gpu for gpu in answering}
        if errors and not gpus:
            raise HostDataError("NVML", "; ".join(errors))
        problem = "; ".join(errors) or "does not list the GPU"
        for device in pci:
            is_silent = device.address in gpus and not gpus[device.address].uuid
            if is_silent and device.vendor_id == _NVIDIA and device.driver in ("", _NVIDIA_DRIVER):
                gpus[device.address] = replace(gpus[device.address], problem=problem)
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


def _read_nvml(nvml: Any, numa_node_of: dict[str, int | None]) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs that answer, and the driver's messages about others or about all."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:  # no driver, no permission, or a driver of another version
        return [], [str(error)]
    found: list[Gpu] = []
    errors: dict[str, None] = {}
    try:
        driver_version = _as_text(nvml.nvmlSystemGetDriverVersion())
        for index in range(_parse_count(nvml.nvmlDeviceGetCount(), _MAX_GPUS, "number of GPUs")):
            try:
                gpu = _read_nvml_device(nvml, index, driver_version, numa_node_of)
                if any(other.address == gpu.address for other in found):
                    raise HostDataError("NVML", f"lists {gpu.address} more than once")
                found.append(gpu)
            except (nvml.NVMLError, HostDataError) as error:
                errors[str(error)] = None
        return found, list(errors)
    except (nvml.NVMLError, HostDataError) as error:
        return [], [str(error)]
    finally:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # the results are valid all the same


def _read_nvml_device(
    nvml: Any, index: int, driver_version: str, numa_node_of: dict[str, int | None]
) -> Gpu:
    """Return one device; raises when it has fallen off the bus or its data is malformed."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    address = parse_nvml_address(_as_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    name = _as_text(nvml.nvmlDeviceGetName(handle))
    uuid = _as_text(nvml.nvmlDeviceGetUUID(handle))
    try:
        total = nvml.nvmlDeviceGetMemoryInfo(handle).total
        memory_mb = capacity_mib_from_bytes(_parse_count(total, _MAX_BYTES, "memory"))
    except _errors(nvml, "NotSupported"):  # where GPU and CPU share their memory
        memory_mb = 0
    mig_uuids = _read_mig_uuids(nvml, handle)
    return Gpu(
        address=address,
        vendor=NVIDIA,
        name=name,
        memory_mb=memory_mb,
        uuid=uuid,
        driver_version=driver_version,
        numa_node=numa_node_of.get(address),
        mig_uuids=mig_uuids,
        problem=_NO_PARTS if not mig_uuids and _is_in_mig_mode(nvml, handle) else "",
    )


def _read_mig_uuids(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Return the uuids of a GPU's MIG devices; none if GPU, driver or library knows none."""
    if not hasattr(nvml, "nvmlDeviceGetMaxMigDeviceCount"):
        return ()
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
        count = _parse_count(count, _MAX_GPUS, "number of MIG devices")
    except _errors(nvml, "NotSupported", "FunctionNotFound"):
        return ()
    # As go-nvlib does, which NVIDIA's own device plugin uses.
    empty = _errors(nvml, "NotFound", "InvalidArgument", "NotSupported")
    found = []
    for index in range(count):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found.append(_as_text(nvml.nvmlDeviceGetUUID(device)))
        except empty:
            continue
    return tuple(found)


def _is_in_mig_mode(nvml: Any, handle: Any) -> bool:
    """Return whether CUDA uses a GPU by its MIG devices alone."""
    if not hasattr(nvml, "nvmlDeviceGetMigMode"):
        return False
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except _errors(nvml, "NotSupported", "FunctionNotFound"):
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _errors(nvml: Any, *names: str) -> tuple[type[Exception], ...]:
    """Return those of the library's errors that it has."""
    found = (getattr(nvml, f"NVMLError_{name}", None) for name in names)
    return tuple(error for error in found if error is not None)


def _as_text(value: object) -> str:
    """Return a string of the library, which older releases return as bytes."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise HostDataError("NVML", f"{render_value(value)} is not a text")
    return text


def _parse_count(value: object, most: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise HostDataError("NVML", f"{what} {render_value(value)} is not a valid number")
    return value
