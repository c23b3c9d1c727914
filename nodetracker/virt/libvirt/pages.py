"""Huge pages as libvirt sees them: how many are free, and which ones a domain gets by default."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from nodetracker.model.errors import HostDataError
from nodetracker.model.numa import MAX_BASE_PAGE_KB, NumaTopology
from nodetracker.virt.host.disk import Mount, parse_mountinfo
from nodetracker.virt.host.memory import read_default_page_kb
from nodetracker.virt.host.roots import Roots, read_optional_text
from nodetracker.virt.libvirt.capabilities import FreePages

if TYPE_CHECKING:  # the module imports libvirt-python
    from nodetracker.virt.libvirt.client import LibvirtClient

_CONFIGURED = re.compile(r"""^\s*hugetlbfs_mount\s*=\s*(\[[^]]*\]|"[^"\n]*")""", re.MULTILINE)
_QUOTED = re.compile(r'"([^"\n]+)"')
_PAGE_SIZE = re.compile(r"pagesize=([0-9]{1,9})([KMG])")
_KIB = {"K": 1, "M": 2**10, "G": 2**20}


def query_free_pages(client: "LibvirtClient", sizes: Mapping[int, tuple[int, ...]]) -> FreePages:
    """Return the free pages by one call for adjacent cells that have pages of the same sizes.

    Args:
        sizes: cell id -> page sizes in KiB, from `list_huge_pages`.
    """
    found: dict[int, Mapping[int, int]] = {}
    numbered = enumerate(sorted(sizes.items()))
    for (_, of_run), run in groupby(numbered, lambda item: (item[1][0] - item[0], item[1][1])):
        cells = [cell for _, (cell, _) in run]
        found |= client.get_free_pages(of_run, cells[0], len(cells)) or {}
    return found


@dataclass(frozen=True, slots=True)
class PageSettings:
    """What decides which huge pages a domain gets that names no size.

    Attributes:
        kernel_kb: the kernel's default size in KiB, None = unknown.
        mounts: mount point -> page size in KiB, in the kernel's order.
        configured: mount points in libvirt's configuration.
    """

    kernel_kb: int | None = None
    mounts: Mapping[str, int] = field(default_factory=dict)
    configured: Sequence[str] = ()


def read_page_settings(roots: Roots) -> PageSettings:
    """Return this machine's settings without those that cannot be read.

    An agent that is not root cannot read the ``qemu.conf`` of Debian.
    """
    kernel_kb = read_default_page_kb(roots)
    path = roots.procfs / "self/mountinfo"
    mounts: Mapping[str, int] = {}
    with suppress(HostDataError):
        text = read_optional_text(path, errors="surrogateescape") or ""
        mounts = _find_sizes(parse_mountinfo(text, str(path)), kernel_kb)
    configuration = ""
    with suppress(HostDataError):
        configuration = read_optional_text(roots.rootfs / "etc/libvirt/qemu.conf") or ""
    return PageSettings(kernel_kb, mounts, parse_configured_mounts(configuration))


def parse_configured_mounts(text: str) -> tuple[str, ...]:
    """Return the mount points that ``qemu.conf`` names.

    >>> parse_configured_mounts('hugetlbfs_mount = ["/dev/2M", "/dev/1G"]')
    ('/dev/2M', '/dev/1G')
    """
    setting = _CONFIGURED.search(text)
    return tuple(_QUOTED.findall(setting[1])) if setting else ()


def _find_sizes(mounts: Iterable[Mount], kernel_kb: int | None) -> dict[str, int]:
    """Return the mount points of huge pages; kernels before 4.13 do not list the page size."""
    found = {}
    for mount in mounts:
        if mount.fs_type == "hugetlbfs":
            sizes = [match for option in mount.options if (match := _PAGE_SIZE.fullmatch(option))]
            size_kb = int(sizes[0][1]) * _KIB[sizes[0][2]] if sizes else kernel_kb
            if size_kb:
                found[mount.mount_point] = size_kb
    return found


def choose_default_page_kb(topology: NumaTopology, settings: PageSettings) -> int:
    """Return the size of huge pages in KiB that a domain gets that names none.

    libvirt takes the mount that its configuration names, the second one of a list (seen in
    9.0); without any the mount of the kernel's default size, or else the first. Where no
    mount is known it is the kernel's default, or the largest size of which the host has pages
    if it has none of that.

    Source: libvirt's virFileGetDefaultHugepage and virQEMUDriverConfigHugeTLBFSInit.
    """
    kernel_kb, mounts = settings.kernel_kb, settings.mounts
    configured = settings.configured[1:2] or settings.configured
    if configured and configured[0] in mounts:
        return mounts[configured[0]]
    if mounts:
        sizes = list(mounts.values())
        return kernel_kb if kernel_kb in sizes else sizes[0]
    present = {
        pool.size_kb
        for cell in topology.cells
        for pool in cell.pages
        if pool.total and pool.size_kb > MAX_BASE_PAGE_KB
    }
    likely = (kernel_kb, topology.default_page_kb)
    return next((size for size in likely if size in present), max(present, default=0)) or (
        kernel_kb or topology.default_page_kb
    )
