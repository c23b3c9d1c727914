"""Parse the engine's descriptions of containers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.guest import PowerState
from nodetracker.model.text import render_value
from nodetracker.model.units import MILLI, usage_mib_from_bytes
from nodetracker.virt.docker.devices import (
    ALL_GPUS,
    parse_devices,
    parse_gpu_names,
    parse_visible_gpus,
)

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SHARES_PER_CPU = 1024
_DEFAULT_PERIOD_US = 100_000
_NANO_PER_MILLI = 1_000_000
_MAX_NUMBER = 2**63 - 1
_NO_LIMIT_BYTES = 2**63 - 2**16
"""Limits of at least this value mean no limit: the kernel shows its maximum number of pages."""

_POWER_STATES = {
    "running": PowerState.RUNNING,
    "stopping": PowerState.RUNNING,
    "paused": PowerState.PAUSED,
    "restarting": PowerState.CRASHED,
    "dead": PowerState.CRASHED,
    "created": PowerState.SHUTDOWN,
    "configured": PowerState.SHUTDOWN,
    "initialized": PowerState.SHUTDOWN,
    "exited": PowerState.SHUTDOWN,
    "stopped": PowerState.SHUTDOWN,
    "removing": PowerState.SHUTDOWN,
}
_ALIVE = frozenset({"running", "stopping", "paused"})
_ENDED = frozenset({"exited", "stopped"})  # the latter is Podman's, until it has cleaned up
_RESTARTED_POLICIES = frozenset({"always"})


class ContainerError(Exception):
    """A container's description is invalid; the text names the part."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container.

    Attributes:
        id: the engine's id.
        state: the engine's state, e.g. ``running``.
        pid: pid of its first process on the engine's machine, 0 without one.
        vcpu_milli: CPU limit or share in thousandths, 0 if not set.
        memory_mb: memory limit, None if not set.
        disk_mb: disk limit, 0 if not set.
        restart_policy: e.g. ``always``, "" for none.
        gpu_names: requested GPUs: numbers, uuids, or `ALL_GPUS`.
        devices: paths of the host devices that are passed through.
        cpus, cells: allowed CPUs and memory cells of the host; empty = any.
    """

    id: str
    name: str
    created: str
    state: str
    pid: int = 0
    vcpu_milli: int = 0
    memory_mb: int | None = None
    disk_mb: int = 0
    restart_policy: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    gpu_names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    cpus: CpuSet = frozenset()
    cells: CpuSet = frozenset()

    @property
    def gpus(self) -> int:
        """Number of requested GPUs, -1 for all."""
        return -1 if ALL_GPUS in self.gpu_names else len(self.gpu_names)

    @property
    def power_state(self) -> PowerState:
        """The power state; NOSTATE for an unknown state of the engine."""
        return _POWER_STATES.get(self.state, PowerState.NOSTATE)

    @property
    def is_alive(self) -> bool:
        """Whether it has processes."""
        return self.state in _ALIVE

    @property
    def holds_resources(self) -> bool:
        """Whether it uses CPU and memory now, or the engine will start it again by itself.

        The engine restarts an ended container only under ``always``: under the
        other policies the container was stopped by a user, or has used up its
        retries.
        """
        return (
            self.is_alive
            or self.state == "restarting"
            or (self.state in _ENDED and self.restart_policy in _RESTARTED_POLICIES)
        )


def parse_container(raw: Any) -> Container:
    """Parse the answer to ``/containers/ID/json``.

    Raises:
        ContainerError: a value that determines its usage is missing or has the wrong type.
    """
    description = _mapping(raw, "the description")
    host_config = _mapping(description.get("HostConfig"), "HostConfig")
    state = _mapping(description.get("State"), "State")
    config = description.get("Config")
    config = config if isinstance(config, Mapping) else {}
    labels = config.get("Labels")
    container_id = description.get("Id")
    if not isinstance(container_id, str) or not container_id:
        raise ContainerError("Id is not a string")
    policy = host_config.get("RestartPolicy")
    memory = _number(host_config, "Memory")
    return Container(
        id=container_id,
        name=str(description.get("Name") or container_id[:12]).removeprefix("/"),
        created=str(description.get("Created") or ""),
        state=str(state.get("Status") or ""),
        pid=_number(state, "Pid"),
        vcpu_milli=parse_vcpu_milli(host_config),
        memory_mb=usage_mib_from_bytes(memory) if 0 < memory < _NO_LIMIT_BYTES else None,
        disk_mb=parse_disk_mb(host_config.get("StorageOpt")),
        restart_policy=str(policy.get("Name") or "") if isinstance(policy, Mapping) else "",
        labels={str(key): str(value) for key, value in labels.items()}
        if isinstance(labels, Mapping)
        else {},
        image=str(config.get("Image") or ""),
        gpu_names=parse_gpu_names(host_config.get("DeviceRequests"))
        or parse_visible_gpus(host_config.get("Runtime"), config.get("Env")),
        devices=parse_devices(host_config.get("Devices")),
        cpus=_parse_set(host_config, "CpusetCpus"),
        cells=_parse_set(host_config, "CpusetMems"),
    )


def parse_vcpu_milli(host_config: Mapping[str, Any]) -> int:
    """Return the CPUs of a container in thousandths, rounded up.

    The first setting that is present counts: NanoCpus, quota / period, the
    number of CPUs in its set, shares (1024 are one CPU).

    Raises:
        ContainerError: a setting has the wrong type.

    >>> parse_vcpu_milli({"NanoCpus": 1500000000}), parse_vcpu_milli({"CpuShares": 512})
    (1500, 500)
    """
    nano = _number(host_config, "NanoCpus")
    if nano > 0:
        return -(-nano // _NANO_PER_MILLI)
    quota = _number(host_config, "CpuQuota")
    if quota > 0:
        period = _number(host_config, "CpuPeriod")
        return -(-quota * MILLI // (period if period > 0 else _DEFAULT_PERIOD_US))
    cpus = _parse_set(host_config, "CpusetCpus")
    if cpus:
        return len(cpus) * MILLI
    return -(-max(0, _number(host_config, "CpuShares")) * MILLI // _SHARES_PER_CPU)


def parse_disk_mb(storage_options: Any) -> int:
    """Return the ``size`` of a container's storage options in MiB, rounded up, 0 without one.

    Raises:
        ContainerError: the size is invalid.

    >>> parse_disk_mb({"size": "10G"}), parse_disk_mb(None)
    (10240, 0)
    """
    size = storage_options.get("size") if isinstance(storage_options, Mapping) else None
    return 0 if size is None else usage_mib_from_bytes(parse_size(str(size)))


def parse_size(text: str) -> int:
    """Parse an engine's notation of a size into bytes; all units are powers of 1024.

    Raises:
        ContainerError: the text is not a valid size.

    >>> parse_size("1.5g"), parse_size("512MiB"), parse_size("100")
    (1610612736, 536870912, 100)
    """
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * 1024 ** _POWERS[match[2].lower()] if match else math.inf
    if size > _MAX_NUMBER:
        raise ContainerError(f"{render_value(text)} is not a valid size")
    return int(size)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ContainerError(f"{what} is not an object")
    return value


def _parse_set(host_config: Mapping[str, Any], key: str) -> CpuSet:
    text = host_config.get(key)
    if not isinstance(text, str) or not text.strip():
        return frozenset()
    try:
        return parse_cpu_set(text)
    except ValueError as error:
        raise ContainerError(f"{key}: {error}") from error


def _number(mapping: Mapping[str, Any], key: str) -> int:
    value = mapping.get(key) or 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_NUMBER:
        raise ContainerError(f"{key}: invalid value {render_value(value)}, expected an integer")
    return value
