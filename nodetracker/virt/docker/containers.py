"""Parse the engine's descriptions of containers.

A value of the wrong type or form raises ContainerError.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard, TypeVar

from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.guest import PowerState
from nodetracker.model.text import render_value
from nodetracker.model.units import MILLI, usage_mib_from_bytes
from nodetracker.virt.host.cgroup import NO_LIMIT_BYTES
from nodetracker.virt.use import ALL

_CDI_NAME = re.compile(r"[^/=]+/[^/=]+=.+")
_CDI_GPU = re.compile(r"[^/=]+/(?:gpu|mig)=.+")
_MAX_GPUS = 1024
_NO_GPU = frozenset({"", "none", "void"})
_MOUNTED = "/var/run/nvidia-container-devices/"
"""Mounts below it request GPUs from NVIDIA's runtime, too."""

_RUNTIME = re.compile(r"(?:.*/)?(nvidia|amd|habana|ascend)(?:-[a-z.-]+)?")
"""Runtimes that obey the environment: NVIDIA's (also in modes), AMD's, Gaudi's and Ascend's."""

_VARIABLES = {
    "amd": ("AMD_VISIBLE_DEVICES", "amd.com/gpu="),
    "habana": ("HABANA_VISIBLE_DEVICES", "habana.ai/gaudi="),
    "ascend": ("ASCEND_VISIBLE_DEVICES", "huawei.com/npu="),
}
"""Runtime -> the variable that it obeys, and the beginning of the CDI names of what that names."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_HOST_GROUPS = frozenset(
    {
        "", "machine.slice", "system.slice", "user.slice", "docker", "libpod_parent", "kubepods",
        "burstable", "besteffort", "kubepods.slice", "kubepods-burstable.slice",
        "kubepods-besteffort.slice",
    }
)  # fmt: skip
_LIMITS = (
    "Memory", "NanoCpus", "CpuQuota", "CpuPeriod", "CpuShares", "CpusetCpus", "CpusetMems",
)  # fmt: skip
_SHARES_PER_CPU = 1024
_DEFAULT_PERIOD_US = 100_000
_NANO_PER_MILLI = 1_000_000
_MAX_NUMBER = 2**63 - 1
_ID = re.compile("[0-9A-Za-z]{1,128}")
_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a text"}

T = TypeVar("T")

_STATES = {
    PowerState.RUNNING: ("running", "stopping"),
    PowerState.PAUSED: ("paused",),
    PowerState.CRASHED: ("restarting", "dead"),
    PowerState.SHUTDOWN: (
        "created", "configured", "initialized", "exited", "stopped", "removing",
    ),
}  # fmt: skip
_POWER_STATES = {name: state for state, names in _STATES.items() for name in names}
_DEAD = frozenset({"dead", "removing"})
_ALIVE = frozenset({"running", "stopping", "paused"})
_OVER = frozenset({"exited", "stopped", "dead", "restarting"})
_ENDED = frozenset({"exited", "stopped"})  # the latter is Podman's, until it has cleaned up


class ContainerError(Exception):
    """A container's description is invalid; the text names the part."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container.

    Attributes:
        state: the engine's state, e.g. ``running``.
        pid: pid of its first process on the engine's machine, 0 without one.
        vcpu_milli: CPU limit or share in thousandths, 0 if not set.
        cpu_rule: what that follows from, e.g. ``shares``; "" if not set.
        has_cpu_limit: whether it cannot use more; a share is none.
        memory_mb: memory limit, None if not set.
        group: control group that it is in with others, as of a pod; "" = the engine's own.
        disk_mb: disk limit, 0 if not set.
        restart_policy: e.g. ``always``, "" for none.
        gpu_names: GPUs requested from the engine: numbers, uuids, `ALL`, or CDI names.
        visible_gpus: those that its environment names, and the legacy default of images; who
            obeys that depends on the runtime.
        runtime: the container runtime, "" for the engine's default.
        annotations: of the OCI specification.
        devices: paths of the host devices that are passed through, or CDI names.
        cpus, cells: allowed CPUs and memory cells of the host; empty = any.
        health: by its health check: ``starting``, ``healthy`` or ``unhealthy``; "" without one.
        exit_code: with which it ended last, None while it runs.
        is_oom_killed: whether the kernel ended it for want of memory, by its last end.
        limits: the engine's settings that its CPUs and memory follow from.
    """

    id: str
    name: str
    created: str
    state: str
    pid: int = 0
    vcpu_milli: int = 0
    cpu_rule: str = ""
    has_cpu_limit: bool = False
    memory_mb: int | None = None
    group: str = ""
    disk_mb: int = 0
    restart_policy: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    gpu_names: tuple[str, ...] = ()
    visible_gpus: tuple[str, ...] = ()
    runtime: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    cpus: CpuSet = frozenset()
    cells: CpuSet = frozenset()
    health: str = ""
    exit_code: int | None = None
    is_oom_killed: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)

    def change_limits(self, settings: Mapping[str, Any]) -> "Container":
        """Return the container after a request to update it; what is 0 or empty stays as it is."""
        changed = {key: settings[key] for key in _LIMITS if settings.get(key)}
        return replace(self, **_parse_limits({**self.limits, **changed}))

    @property
    def gpus(self) -> int:
        """Number of requested GPUs, -1 for all."""
        names = [name.rpartition("=")[2] for name in self.gpu_names]
        return -1 if ALL in names else len(names)

    def obey(self, default_runtime: str, has_hook: bool) -> "Container":
        """Return the container with the GPUs that its environment requests, where that counts.

        Base images request all GPUs, which means something only to a runtime or a hook that
        obeys.

        Args:
            default_runtime: of the engine.
            has_hook: a hook of the engine obeys for all containers.
        """
        match = _RUNTIME.fullmatch(self.runtime or default_runtime)
        vendor = match[1] if match else "nvidia" if has_hook else ""
        if not vendor or self.gpu_names:
            return self
        of_others = {name for _, start in _VARIABLES.values() for name in self._list_named(start)}
        own = (
            self._list_named(_VARIABLES[vendor][1])
            if vendor in _VARIABLES
            else tuple(name for name in self.visible_gpus if name not in of_others)
        )
        return replace(self, gpu_names=own)

    def _list_named(self, start: str) -> tuple[str, ...]:
        return tuple(name for name in self.visible_gpus if name.startswith(start))

    @property
    def power_state(self) -> PowerState:
        """The power state; NOSTATE for an unknown state of the engine."""
        return _POWER_STATES.get(self.state, PowerState.NOSTATE)

    @property
    def is_alive(self) -> bool:
        return self.state in _ALIVE

    @property
    def is_dead(self) -> bool:
        """Whether the engine could not remove it, or is removing it."""
        return self.state in _DEAD

    @property
    def holds_resources(self) -> bool:
        """Whether it uses CPU and memory now, or the engine will start it again by itself.

        The engine restarts an ended container only under ``always``: under the
        other policies the container was stopped by a user, or has used up its
        retries. In a state that is not known it may run.
        """
        return (
            self.is_alive
            or self.state == "restarting"
            or self.power_state is PowerState.NOSTATE
            or (self.state in _ENDED and self.restart_policy == "always")
        )


def parse_container(raw: Any) -> Container:
    """Parse the answer to ``/containers/ID/json``."""
    description = _mapping(raw, "the description")
    host_config = _mapping(description.get("HostConfig"), "HostConfig")
    state = _mapping(description.get("State"), "State")
    config = _get(description, "Config", dict) or {}
    container_id = description.get("Id")
    if not is_container_id(container_id):
        raise ContainerError("Id is not a container id")
    status, health = _get(state, "Status", str) or "", state.get("Health")
    exit_code = state.get("ExitCode")
    return Container(
        id=container_id,
        name=(_get(description, "Name", str) or container_id[:12]).removeprefix("/"),
        created=_text(description.get("Created")),
        state=status,
        pid=_number(state, "Pid"),
        group=parse_group(_get(host_config, "CgroupParent", str)),
        disk_mb=parse_disk_mb(host_config.get("StorageOpt")),
        restart_policy=_get(_get(host_config, "RestartPolicy", dict) or {}, "Name", str) or "",
        labels=_texts(config, "Labels"),
        image=_text(config.get("Image")),
        gpu_names=parse_gpu_names(host_config.get("DeviceRequests")),
        visible_gpus=parse_visible_gpus(config.get("Env"), description.get("Mounts")),
        runtime=_parse_runtime(description, host_config),
        annotations=_texts(config, "Annotations") | _texts(host_config, "Annotations"),
        devices=parse_devices(
            host_config.get("Devices"),
            host_config.get("DeviceRequests"),
            parse_mounted_devices(host_config, description.get("Mounts")),
        ),
        health=parse_health(_text(health.get("Status")) if isinstance(health, Mapping) else ""),
        exit_code=exit_code if status in _OVER and isinstance(exit_code, int) else None,
        is_oom_killed=state.get("OOMKilled") is True,
        **_parse_limits(host_config),
    )


def _parse_limits(host_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a container that follow from its limits of CPUs and memory."""
    memory = _number(host_config, "Memory")
    vcpu_milli, cpu_rule = parse_cpu_charge(host_config)
    cpus = _parse_set(host_config, "CpusetCpus")
    return {
        "vcpu_milli": vcpu_milli,
        "cpu_rule": cpu_rule,
        "has_cpu_limit": bool(cpus)
        or any(_number(host_config, key) > 0 for key in ("NanoCpus", "CpuQuota")),
        "memory_mb": usage_mib_from_bytes(memory) if 0 < memory < NO_LIMIT_BYTES else None,
        "cpus": cpus,
        "cells": _parse_set(host_config, "CpusetMems"),
        "limits": {key: host_config[key] for key in _LIMITS if host_config.get(key)},
    }


def is_container_id(value: Any) -> TypeGuard[str]:
    """Return whether a value may be the id of a container."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def parse_health(text: str) -> str:
    """Return the health that a description or a line of the list has, "" without any.

    >>> parse_health("Up 2 minutes (health: starting)"), parse_health("none")
    ('starting', '')
    """
    return next((word for word in ("unhealthy", "healthy", "starting") if word in text), "")


def parse_cpu_charge(host_config: Mapping[str, Any]) -> tuple[int, str]:
    """Return the CPUs of a container in thousandths, rounded up, and the rule that they follow.

    The first setting that is present counts: NanoCpus, quota / period, shares
    (1024 are one CPU), the width of its set. A set also limits the others.

    >>> parse_cpu_charge({"CpuShares": 512, "CpusetCpus": "0-28"})
    (500, 'shares')
    >>> parse_cpu_charge({"NanoCpus": 8000000000, "CpusetCpus": "0-3"})
    (4000, 'CPU set')
    """
    nano, quota = _number(host_config, "NanoCpus"), _number(host_config, "CpuQuota")
    period, shares = _number(host_config, "CpuPeriod"), _number(host_config, "CpuShares")
    width = len(_parse_set(host_config, "CpusetCpus")) * MILLI
    if nano > 0:
        milli, rule = -(-nano // _NANO_PER_MILLI), "NanoCpus"
    elif quota > 0:
        milli = -(-quota * MILLI // (period if period > 0 else _DEFAULT_PERIOD_US))
        rule = "quota"
    elif shares > 0:
        milli, rule = -(-shares * MILLI // _SHARES_PER_CPU), "shares"
    else:
        return width, "CPU set" if width else ""
    return (width, "CPU set") if 0 < width < milli else (milli, rule)


def parse_group(parent: str | None) -> str:
    """Return a container's parent group, "" for one that all containers of the host are in.

    Those have the host's own limits.

    >>> parse_group("machine.slice/machine-libpod_pod_9.slice"), parse_group("machine.slice")
    ('machine.slice/machine-libpod_pod_9.slice', '')
    """
    text = (parent or "").rstrip("/")
    return "" if text.rpartition("/")[2] in _HOST_GROUPS else text


def parse_disk_mb(storage_options: Any) -> int:
    """Return the ``size`` of a container's storage options in MiB, rounded up, 0 without one.

    >>> parse_disk_mb({"size": "10G"}), parse_disk_mb(None)
    (10240, 0)
    """
    options = _texts({"StorageOpt": storage_options}, "StorageOpt")
    sizes = [text for name, text in options.items() if name.lower() == "size"]
    return max((usage_mib_from_bytes(parse_size(text)) for text in sizes), default=0)


def parse_size(text: str) -> int:
    """Parse an engine's notation of a size into bytes; all units are powers of 1024.

    >>> parse_size("1.5g"), parse_size("512MiB"), parse_size("100")
    (1610612736, 536870912, 100)
    """
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * 1024 ** _POWERS[match[2].lower()] if match else math.inf
    if size > _MAX_NUMBER:
        raise ContainerError(f"{render_value(text)} is not a valid size")
    return int(size)


def parse_gpu_names(requests: Any) -> tuple[str, ...]:
    """Return the GPUs that a container requested: by number, uuid, `ALL`, or CDI name.

    If a number of GPUs is requested, the engine assigns the first ones.

    >>> parse_gpu_names([{"Count": 2, "DeviceIDs": None, "Capabilities": [["gpu"]]}])
    ('0', '1')
    """
    found: list[str] = []
    for request in _requests({"DeviceRequests": requests}):
        names, count, driver = _names(request), _number(request, "Count"), _driver(request)
        if driver == "cdi":
            found += filter(_CDI_GPU.fullmatch, names)
        elif driver in ("nvidia", "amd") or _has_capability(request, "gpu"):
            if not names:
                names = [ALL] if count < 0 else [*map(str, range(min(count, _MAX_GPUS)))]
            is_amd = driver == "amd"
            found += [f"amd.com/gpu={name}" for name in names] if is_amd else names
    return tuple(found)


def _requests(host_config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _items(host_config, "DeviceRequests", dict)


def _driver(request: Mapping[str, Any]) -> str:
    return _get(request, "Driver", str) or ""


def _names(request: Mapping[str, Any]) -> list[str]:
    return _items(request, "DeviceIDs", str)


def _has_capability(request: Mapping[str, Any], name: str) -> bool:
    return any(name in alternative for alternative in _items(request, "Capabilities", list))


def parse_visible_gpus(environment: Any, mounts: Any = None) -> tuple[str, ...]:
    """Return the GPUs that a container requests of a vendor's runtime by its environment.

    Images for CUDA before version 9 have no such variable and get all.

    Returns:
        As `parse_gpu_names`; those of other vendors as CDI names.

    >>> parse_visible_gpus(["A=b", "NVIDIA_VISIBLE_DEVICES=0,GPU-1", "AMD_VISIBLE_DEVICES=1"])
    ('0', 'GPU-1', 'amd.com/gpu=1')
    """
    items = _items({"Env": environment}, "Env", str)
    pairs = dict(item.split("=", 1) for item in items if "=" in item)
    is_legacy = "CUDA_VERSION" in pairs and "NVIDIA_REQUIRE_CUDA" not in pairs
    text = pairs.get("NVIDIA_VISIBLE_DEVICES", ALL if is_legacy else "")
    found = [name for name in map(str.strip, text.split(",")) if name not in _NO_GPU]
    mounted = [
        _get(mount, "Destination", str) or ""
        for mount in _items({"Mounts": mounts}, "Mounts", dict)
    ]
    found += [path.removeprefix(_MOUNTED) for path in mounted if path.startswith(_MOUNTED)]
    for variable, start in _VARIABLES.values():
        names = map(str.strip, pairs.get(variable, "").split(","))
        found += [start + name for name in names if name not in _NO_GPU]
    return tuple(found)


def _parse_runtime(description: Mapping[str, Any], host_config: Mapping[str, Any]) -> str:
    """Return the runtime; Podman has it beside HostConfig, where it always says ``oci``."""
    for value in (_get(description, "OCIRuntime", str), _get(host_config, "Runtime", str)):
        if value and value != "oci":
            return value
    return ""


def parse_mounted_devices(host_config: Mapping[str, Any], mounts: Any) -> tuple[str, ...]:
    """Return the paths in ``/dev`` that are mounted into a container which may use such devices.

    That is one with rules for devices, or a privileged one. ``/dev`` as a whole, which programs
    of the host get to watch it, is left out.

    >>> rules, mounts = ["c 226:* rwm"], [{"Type": "bind", "Source": "/dev/dri"}]
    >>> parse_mounted_devices({"DeviceCgroupRules": rules}, mounts)
    ('/dev/dri',)
    """
    rules = _items(host_config, "DeviceCgroupRules", str)
    found = _items({"Mounts": mounts}, "Mounts", dict)
    if not (rules or host_config.get("Privileged") is True):
        return ()
    sources = [_get(mount, "Source", str) or "" for mount in found]
    return tuple(path for path in sources if path.startswith("/dev/"))


def parse_devices(
    devices: Any, requests: Any = None, mounted: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the host paths of a container's devices, or CDI names, in ascending order.

    Args:
        requests: those by CDI name that are not GPUs are added.
        mounted: further paths.
    """
    found = _items({"Devices": devices}, "Devices", dict)
    paths = [*mounted, *(_get(device, "PathOnHost", str) or "" for device in found)]
    for request in _requests({"DeviceRequests": requests}):
        if _driver(request) == "cdi":
            paths += [
                name
                for name in _names(request)
                if _CDI_NAME.fullmatch(name) and not _CDI_GPU.fullmatch(name)
            ]
    return tuple(sorted({*paths} - {""}))


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ContainerError(f"{what} is not an object")
    return value


def _get(mapping: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    """Return the value of a key, None if it is absent or null."""
    value = mapping.get(key)
    return None if value is None else _check(value, key, kind)


def _items(mapping: Mapping[str, Any], key: str, kind: type[T]) -> list[T]:
    """Return the items of a list that are not null, none if it is absent or null."""
    found = _get(mapping, key, list) or ()
    return [_check(item, key, kind) for item in found if item is not None]


def _texts(mapping: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return an object of texts, an empty one if it is absent or null."""
    found = _get(mapping, key, dict) or {}
    return {str(name): _check(text, key, str) for name, text in found.items()}


def _check(value: Any, key: str, kind: type[T]) -> T:
    if not isinstance(value, kind):
        expected = _KINDS[kind]
        raise ContainerError(f"{key}: invalid value {render_value(value)}, expected {expected}")
    return value


def _text(value: Any) -> str:
    """Return a text that is only displayed, "" for a value of another type."""
    return value if isinstance(value, str) else ""


def _parse_set(host_config: Mapping[str, Any], key: str) -> CpuSet:
    try:
        return parse_cpu_set(_get(host_config, key, str) or "")
    except ValueError as error:
        raise ContainerError(f"{key}: {error}") from error


def _number(mapping: Mapping[str, Any], key: str) -> int:
    value = mapping.get(key)
    if value is None or value == "":
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_NUMBER:
        raise ContainerError(f"{key}: invalid value {render_value(value)}, expected an integer")
    return value
