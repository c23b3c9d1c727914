"""Read which device nodes, interfaces and CDI names are of which PCI functions.

What `use` resolves the names with that guests have for devices of the host.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from nodetracker.accounting.validator import parse_json
from nodetracker.model.errors import HostDataError, RequestError
from nodetracker.model.pci import ADDRESS_PATTERN
from nodetracker.virt.host.gpu import parse_nvml_address
from nodetracker.virt.host.roots import (
    Roots,
    list_directory,
    path_exists,
    read_link_name,
    read_link_parent,
    read_optional_text,
)
from nodetracker.virt.yaml_document import parse_yaml

SOURCES = ("nvidia", "drm", "vfio", "vdpa", "nodes", "cdi")
"""What `DeviceNodes` are read from."""

CLASS_DIRECTORIES = {
    "nvme": "/dev",
    "infiniband_verbs": "/dev/infiniband",
    "accel": "/dev/accel",
}
"""Directory of `/sys/class` -> that of its device nodes, which guests share."""

_MINOR = re.compile("[0-9]{1,9}")
_INFORMATION = re.compile(r"^(GPU UUID|Device Minor):\s*(\S+)", re.MULTILINE)
_CDI_DIRECTORIES = ("etc/cdi", "var/run/cdi", "run/cdi")


@dataclass(frozen=True, slots=True)
class DeviceNodes:
    """Which device nodes and CDI names belong to which PCI functions.

    Attributes:
        nvidia: minor number of NVIDIA's driver -> address and uuid; the driver numbers its
            GPUs in another order than their addresses.
        drm: name of a node in ``/dev/dri`` -> address, None for one that is not a PCI function.
        vfio: name in ``/dev/vfio/devices`` -> address.
        mdevs: uuid of a mediated device -> address of its parent.
        vdpa: name of a vDPA device's node in ``/dev`` -> address of its parent.
        nodes: another device node, as ``/dev/nvme0`` -> address, None for one that is not a
            PCI function; of most kinds only those that guests have.
        netdevs: network interface -> addresses of the functions below it, none if it has none.
        cdi: qualified CDI name -> paths of its device nodes.
        problems: directory -> why it could not be read.
    """

    nvidia: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    drm: Mapping[str, str | None] = field(default_factory=dict)
    vfio: Mapping[str, str | None] = field(default_factory=dict)
    mdevs: Mapping[str, str] = field(default_factory=dict)
    vdpa: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    netdevs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    cdi: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def read_device_nodes(roots: Roots, paths: Iterable[str] = ()) -> DeviceNodes:
    """Return which device nodes the kernel and the CDI specifications have.

    Args:
        paths: those that guests have, and CDI names.

    Source: ``/proc/driver/nvidia/gpus/*/information``, ``/sys/class/drm``,
    ``/sys/class/vfio-dev``, the Container Device Interface.
    """
    problems: dict[str, str] = {}
    attempt = partial(_attempt, problems)
    cdi = _read_cdi(roots, attempt)
    wanted = {*paths}.union(*cdi.values())
    return DeviceNodes(
        nvidia=attempt("nvidia", lambda: _read_nvidia(roots)),
        drm=attempt("drm", lambda: _read_links(roots.sysfs / "class/drm")),
        vfio=attempt("vfio", lambda: _read_links(roots.sysfs / "class/vfio-dev")),
        vdpa=attempt("vdpa", lambda: _read_vdpa(roots.sysfs / "bus/vdpa/devices")),
        nodes=attempt("nodes", lambda: _read_class_nodes(roots) | find_nodes(roots, wanted)),
        cdi=cdi,
        problems=problems,
    )


def _attempt(problems: dict[str, str], source: str, read: Callable[[], Any]) -> Any:
    """Return what `read` returns; if it raises HostDataError, {}, and add it to the problems."""
    try:
        return read()
    except HostDataError as error:
        problems[source] = str(error)
        return {}


def read_guest_devices(roots: Roots, paths: Iterable[str] = ()) -> DeviceNodes:
    """Return what the guests of a hypervisor use of the host, beside functions by address.

    Args:
        paths: the device nodes that guests have.

    Source: Linux Documentation/ABI/testing/sysfs-bus-vfio-mdev, sysfs-bus-vdpa, sysfs-class-net.
    """
    problems: dict[str, str] = {}
    attempt = partial(_attempt, problems)
    sysfs = roots.sysfs
    return DeviceNodes(
        drm=attempt("drm", lambda: _read_links(sysfs / "class/drm")),
        mdevs=attempt("mdev", lambda: _read_parents(sysfs / "bus/mdev/devices")),
        vdpa=attempt("vdpa", lambda: _read_vdpa(sysfs / "bus/vdpa/devices")),
        nodes=attempt("nodes", lambda: _read_class_nodes(roots) | find_nodes(roots, paths)),
        netdevs=attempt("net", lambda: _read_interfaces(sysfs / "class/net")),
        problems=problems,
    )


def _read_class_nodes(roots: Roots) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for kind, directory in CLASS_DIRECTORIES.items():
        base = roots.sysfs / "class" / kind
        for name in list_directory(base) or ():
            path = f"{directory}/{name}"
            found[path] = _find_function(base / name / "device")
    return found


def find_nodes(roots: Roots, paths: Iterable[str]) -> dict[str, str | None]:
    """Return those device nodes that are in a class of ``/sys``, as in `DeviceNodes.nodes`.

    A link as ``/dev/disk/by-id/…`` is the node that it leads to.
    """
    base = roots.sysfs / "class"
    classes = [base / kind for kind in list_directory(base) or () if kind != "net"]
    found: dict[str, str | None] = {}
    for path in paths:
        if not path.startswith("/dev/") or "\0" in path:
            continue
        node = os.path.realpath(roots.rootfs / path.lstrip("/"))
        names = {PurePath(node).name, path.removeprefix("/dev/").replace("/", "!")}
        for place in (directory / name for directory in classes for name in names):
            if path_exists(place):
                found[path] = _find_above(place / "device") or _find_above(place)
    return found


def _find_function(link: Path) -> str | None:
    """Return the PCI function that a link leads to, or that has what it leads to."""
    name = read_link_name(link)
    if name is None or ADDRESS_PATTERN.fullmatch(name):
        return name
    return _find_above(link)


def _find_above(place: Path) -> str | None:
    """Return the PCI function that a place, without links, is in."""
    parts = reversed(Path(os.path.realpath(place)).parts)
    return next((part for part in parts if ADDRESS_PATTERN.fullmatch(part)), None)


def _read_vdpa(base: Path) -> dict[str, str]:
    """Return the nodes of vDPA devices with the PCI functions that they are made of."""
    found: dict[str, str] = {}
    for name in list_directory(base) or ():
        parent = _find_function(base / name)
        if parent is not None:
            nodes = list_directory(base / name) or ()
            found |= {node: parent for node in nodes if node.startswith("vhost-vdpa-")}
    return found


def _read_interfaces(base: Path) -> dict[str, frozenset[str]]:
    """Return the network interfaces with the functions that they, or those below them, are."""
    names = list_directory(base) or ()
    own = {name: _find_function(base / name / "device") for name in names}

    def list_functions(name: str, seen: frozenset[str]) -> frozenset[str]:
        if name in seen or name not in names:
            return frozenset()
        address = own.get(name)
        if address is not None:
            return frozenset({address})
        lower = [entry[6:] for entry in list_directory(base / name) or () if entry[:6] == "lower_"]
        return frozenset().union(*(list_functions(other, seen | {name}) for other in lower))

    return {name: list_functions(name, frozenset()) for name in names}


def _read_nvidia(roots: Roots) -> dict[int, tuple[str, str]]:
    base = roots.procfs / "driver/nvidia/gpus"
    found = {}
    for name in list_directory(base) or ():
        values = parse_nvidia_information(read_optional_text(base / name / "information") or "")
        minor = values.get("Device Minor", "")
        if _MINOR.fullmatch(minor):
            found[int(minor)] = (parse_nvml_address(name), values.get("GPU UUID", ""))
    return found


def parse_nvidia_information(text: str) -> dict[str, str]:
    r"""Return uuid and minor number from a file ``information`` of NVIDIA's driver.

    >>> parse_nvidia_information("Model: \t NVIDIA A100\nGPU UUID: \t GPU-1\nDevice Minor: \t 3\n")
    {'GPU UUID': 'GPU-1', 'Device Minor': '3'}
    """
    return dict(_INFORMATION.findall(text))


def _read_links(base: Path) -> dict[str, str | None]:
    """Return the entries of a class whose devices are, or may be, PCI functions."""
    found: dict[str, str | None] = {}
    for name in list_directory(base) or ():
        device = read_link_name(base / name / "device")
        if device is not None:
            found[name] = device if ADDRESS_PATTERN.fullmatch(device) else None
    return found


def _read_parents(base: Path) -> dict[str, str]:
    """Return the devices of a bus with the PCI functions right above them."""
    found = {}
    for name in list_directory(base) or ():
        parent = read_link_parent(base / name)
        if parent is not None and ADDRESS_PATTERN.fullmatch(parent):
            found[name] = parent
    return found


def _read_cdi(
    roots: Roots, attempt: Callable[[str, Callable[[], Any]], Any]
) -> dict[str, tuple[str, ...]]:
    """Return the names of all specifications; one that cannot be used loses its own only."""
    found: dict[str, tuple[str, ...]] = {}
    for directory in _CDI_DIRECTORIES:
        base = roots.rootfs / directory
        for name in attempt("cdi", partial(list_directory, base)) or ():
            if name.endswith((".json", ".yaml", ".yml")):
                found |= attempt("cdi", partial(_read_specification, base / name))
    return found


def _read_specification(path: Path) -> dict[str, tuple[str, ...]]:
    text = read_optional_text(path)
    return {} if text is None else parse_cdi(text, str(path))


def parse_cdi(text: str, source: str) -> dict[str, tuple[str, ...]]:
    """Return the qualified names of a CDI specification, each with its device nodes.

    Raises:
        HostDataError: it is not a specification.
    """
    try:
        parse = parse_json if source.endswith(".json") else parse_yaml
        plain: Any = parse(text, source)
    except (RequestError, HostDataError) as error:
        raise HostDataError(source, f"is not a CDI specification: {error.reason}") from error
    if not isinstance(plain, Mapping) or not isinstance(plain.get("kind"), str):
        raise HostDataError(source, "is not a CDI specification: it has no kind")
    common = _list_nodes(plain, source)
    devices = _require_list(plain, "devices", source)
    return {
        f"{plain['kind']}={device.get('name')}": (*common, *_list_nodes(device, source))
        for device in devices
    }


def _list_nodes(item: Mapping[str, Any], source: str) -> tuple[str, ...]:
    edits = item.get("containerEdits")
    if edits is None:
        return ()
    if not isinstance(edits, Mapping):
        raise HostDataError(source, "is not a CDI specification: containerEdits is not an object")
    nodes = _require_list(edits, "deviceNodes", source)
    paths = [node.get("hostPath") or node.get("path") for node in nodes]
    absolute = tuple(path for path in paths if isinstance(path, str) and path.startswith("/"))
    if len(absolute) < len(paths):
        reason = "is not a CDI specification: a device node has no absolute path"
        raise HostDataError(source, reason)
    return absolute


def _require_list(item: Mapping[str, Any], key: str, source: str) -> list[Mapping[str, Any]]:
    """Return a list of objects, an empty one if it is absent."""
    found = item.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise HostDataError(source, f"is not a CDI specification: {key} is not a list of objects")
    return found
