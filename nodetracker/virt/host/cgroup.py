"""Read the CPU time and memory that a container's control group actually uses."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nodetracker.model.errors import HostDataError
from nodetracker.model.units import MILLI
from nodetracker.virt.host.roots import (
    Roots,
    parse_integer,
    read_optional_integer,
    read_optional_text,
)

_NS_PER_US = 1000
_LARGE = re.compile("[0-9]{19,20}")
_CPU_MAX_WORDS = 2  # quota and period
NO_LIMIT_BYTES = 2**63 - 2**16
"""Limits of at least this value mean no limit: the kernel shows its maximum number of pages."""


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """CPU time and memory used by a control group.

    Attributes:
        cpu_ns: CPU time since the group was created, in nanoseconds.
        working_set_bytes: memory that cannot be reclaimed immediately: usage
            minus the inactive page cache. None where the kernel does not count it, as
            the memory controller is missing, disabled or not delegated.
    """

    cpu_ns: int
    working_set_bytes: int | None


def parse_cgroup_paths(text: str) -> dict[str, str]:
    r"""Parse the text of ``/proc/PID/cgroup`` into controller -> path; "" is version 2.

    Source: cgroups(7).

    >>> parse_cgroup_paths("4:cpu,cpuacct:/docker/1b\n0::/docker/1b\n")
    {'cpu': '/docker/1b', 'cpuacct': '/docker/1b', '': '/docker/1b'}
    """
    paths = {}
    for line in text.split("\n"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(","):
                paths[controller] = fields[2]
    return paths


def cut_path(path: str, owner: str) -> str | None:
    """Return a path up to the part that contains its owner's name, None without such a part.

    A container's processes may be in groups below the container's group, and
    a process id may have been reused by another process.

    >>> cut_path("/machine.slice/libpod-1b.scope/container", "1b")
    '/machine.slice/libpod-1b.scope'
    """
    parts = path.split("/")
    for number, part in enumerate(parts):
        if part == "..":
            return None
        if owner in part:
            return "/".join(parts[: number + 1])
    return None


def parse_field(text: str, name: str, source: str) -> int:
    r"""Return one value from lines of a name and a number, as in ``memory.stat``.

    >>> parse_field("cache 4096\ntotal_inactive_file 1024\n", "total_inactive_file", "memory.stat")
    1024
    """
    for line in text.split("\n"):
        found, _, value = line.partition(" ")
        if found == name:
            return parse_integer(value, source)
    raise HostDataError(source, f"has no {name}")


def read_cgroup_usage(pid: int, owner: str, roots: Roots) -> CgroupUsage | None:
    """Return the usage of a container's control group.

    Args:
        pid: one of its processes, on the machine of `roots`.
        owner: text that identifies the container in the paths of its groups.

    Returns:
        None when the process has exited, or its groups are not visible here.

    Raises:
        HostDataError: a file exists and is unreadable or malformed.

    Source: Linux Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
    """
    text = read_optional_text(roots.procfs / str(pid) / "cgroup")
    paths = {
        controller: cut
        for controller, path in parse_cgroup_paths(text or "").items()
        if (cut := cut_path(path, owner)) is not None
    }
    base = roots.sysfs / "fs/cgroup"
    if "cpuacct" in paths:
        cpu = base / "cpuacct" / paths["cpuacct"].lstrip("/")
        cpu_ns = read_optional_integer(cpu / "cpuacct.usage")
        usage = inactive = None
        if "memory" in paths:
            memory = base / "memory" / paths["memory"].lstrip("/")
            usage = read_optional_integer(memory / "memory.usage_in_bytes")
            inactive = _read_field(memory / "memory.stat", "total_inactive_file")
    elif "" in paths:
        group = base / paths[""].lstrip("/")
        cpu_us = _read_field(group / "cpu.stat", "usage_usec")
        cpu_ns = None if cpu_us is None else cpu_us * _NS_PER_US
        usage = read_optional_integer(group / "memory.current")
        inactive = _read_field(group / "memory.stat", "inactive_file")
    else:
        return None
    if cpu_ns is None:
        return None
    if usage is None or inactive is None:
        return CgroupUsage(cpu_ns, None)
    return CgroupUsage(cpu_ns, max(0, usage - inactive))


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the containers of one control group may use together; None = no limit."""

    vcpu_milli: int | None = None
    memory_bytes: int | None = None


def read_group_limits(pids: Iterable[int], parent: str, roots: Roots) -> GroupLimits:
    """Return the limits of the control group in which containers are, not of those above it.

    Args:
        pids: processes of the containers, on the machine of `roots`.
        parent: path or systemd slice of the group, as the containers' ``CgroupParent``.

    Raises:
        HostDataError: the group is not found, or a file is unreadable or malformed.

    Source: Linux Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
    """
    name = parent.rstrip("/").rpartition("/")[2]
    paths: dict[str, str] = {}
    for pid in pids:
        text = read_optional_text(roots.procfs / str(pid) / "cgroup") or ""
        found = {
            controller: cut
            for controller, path in parse_cgroup_paths(text).items()
            if (cut := _cut_at(path, name)) is not None
        }
        paths = found | paths
    base = roots.sysfs / "fs/cgroup"
    if "memory" in paths or "cpu" in paths:
        quota = period = memory = None
        if "cpu" in paths:
            cpu = _find_group(base / "cpu" / paths["cpu"].lstrip("/"))
            quota = read_optional_integer(cpu / "cpu.cfs_quota_us")
            period = read_optional_integer(cpu / "cpu.cfs_period_us")
        if "memory" in paths:
            group = _find_group(base / "memory" / paths["memory"].lstrip("/"))
            memory = _read_limit(group / "memory.limit_in_bytes")
    else:
        group = _find_group(base / paths.get("", parent).lstrip("/"))
        words = (read_optional_text(group / "cpu.max") or "max").split()
        quota, period = (
            map(partial(parse_integer, source=str(group / "cpu.max")), words)
            if len(words) == _CPU_MAX_WORDS and words[0] != "max"
            else (None, None)
        )
        memory = _read_limit(group / "memory.max")
    return GroupLimits(
        -(-quota * MILLI // period) if quota and period and quota > 0 else None,
        memory,
    )


def _find_group(path: Path) -> Path:
    """Return the directory of a group; raises HostDataError if there is none."""
    if not path.is_dir():
        raise HostDataError(str(path), "there is no such control group")
    return path


def _read_limit(path: Path) -> int | None:
    """Return a limit of memory in bytes, None for no limit."""
    text = (read_optional_text(path) or "max").strip()
    if text == "max" or (_LARGE.fullmatch(text) and int(text) >= NO_LIMIT_BYTES):
        return None
    return parse_integer(text, str(path))


def _cut_at(path: str, name: str) -> str | None:
    parts = path.split("/")
    if ".." in parts or name not in parts:
        return None
    return "/".join(parts[: parts.index(name) + 1])


def _read_field(path: Path, name: str) -> int | None:
    text = read_optional_text(path)
    return None if text is None else parse_field(text, name, str(path))
