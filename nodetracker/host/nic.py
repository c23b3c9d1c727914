"""Read the machine's network interfaces with their drivers and speeds."""

import re
from functools import partial
from pathlib import Path

from nodetracker.host.problems import Partial, Problems
from nodetracker.host.roots import (
    Roots,
    list_directory,
    path_exists,
    read_label,
    read_link_name,
)
from nodetracker.model.host import Nic
from nodetracker.model.pci import ADDRESS_PATTERN

MAX_NICS = 64
"""Number of interfaces that are listed, in the order of their names."""

_NAME = re.compile(r"[!-~]{1,64}")
_SPEED = re.compile(r"[0-9]{1,7}")
_DOWN = frozenset({"down", "notpresent", "lowerlayerdown"})


def read_nics(roots: Roots) -> Partial[tuple[Nic, ...]]:
    """Return the network interfaces that are devices, without virtual functions.

    Interfaces without a device (bridges, bonds, tap devices) come and go with
    guests, and those of virtual functions are passed to them.

    Source: Linux Documentation/ABI/testing/sysfs-class-net.
    """
    base = roots.sysfs / "class/net"
    problems = Problems(base)
    listing = partial(list_directory, base)
    names = problems.attempt(listing, None, "the network interfaces are unknown") or ()
    found: list[Nic] = []
    for name in names:
        nic = _read_nic(base / name, problems) if _NAME.fullmatch(name) else None
        if nic is not None:
            found.append(nic)
        if len(found) == MAX_NICS:
            break
    return Partial(tuple(found), problems.list_all())


def _read_nic(directory: Path, problems: Problems) -> Nic | None:
    link = partial(read_link_name, directory / "device")
    device = problems.attempt(link, None, "the interface is left out")
    if device is None or path_exists(directory / "device/physfn"):
        return None
    driver = partial(read_link_name, directory / "device/driver")
    return Nic(
        name=directory.name,
        address=device if ADDRESS_PATTERN.fullmatch(device) else None,
        driver=problems.attempt(driver, None, "the interface is listed without it") or "",
        speed_mbps=_read_speed(directory),
    )


def _read_speed(directory: Path) -> int | None:
    """Return the speed of a link, None while it is down or its driver does not know it.

    The kernel refuses to read ``speed`` of an interface that is down (EINVAL),
    and it is -1, or as in old kernels 65535 or 4294967295, when it is unknown.
    """
    if read_label(directory / "operstate") in _DOWN:
        return None
    text = read_label(directory / "speed")
    speed = int(text) if _SPEED.fullmatch(text) else 0
    return speed if speed not in {0, 65535} else None
