"""Read what the engine's plugin asks before a container is created, started or changed.

The engine waits for the answer, so nothing here asks the engine: containers are those of its
last listing, and those that were created since.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from nodetracker.model.errors import ClaimRefusedError, HostDataError
from nodetracker.model.guest import Guest
from nodetracker.model.numa import NumaTopology
from nodetracker.virt.docker.containers import Container, ContainerError, parse_container
from nodetracker.virt.docker.guests import (
    HostTopology,
    build_guest,
    derive_pins,
    describe_gpus,
    parse_workload_uuid,
)

KEPT_CONTAINERS = 1000
"""Created containers that are remembered until the engine lists them."""

STARTED_SECONDS = 60.0
"""How long the last listing may lack that a container was started, which was asked about."""

_SOURCE = "plugin"
_UNKNOWN_ID = "0" * 64
_KEYS = {
    key.lower(): key
    for key in (
        "HostConfig", "Labels", "Env", "Image", "Annotations", "Mounts", "Memory", "NanoCpus",
        "CpuQuota", "CpuPeriod", "CpuShares", "CpusetCpus", "CpusetMems", "Devices",
        "DeviceRequests", "Runtime", "CgroupParent", "RestartPolicy", "StorageOpt", "Driver",
        "Count", "DeviceIDs", "Capabilities", "PathOnHost", "Name", "Destination",
    )
}  # fmt: skip
"""Keys of requests that say what a container takes."""

_STRUCTURES = frozenset({"HostConfig", "DeviceRequests", "Devices", "RestartPolicy", "Mounts"})
"""Those whose values have such keys themselves."""


@dataclass(frozen=True, slots=True)
class StartRules:
    """What decides what a container takes.

    Attributes:
        unlimited_mb: what one without a limit of memory is charged.
        requires_limits: refuse one without a limit of CPUs or memory.
        trusts_labels: see ``[docker] trust_labels``.
    """

    unlimited_mb: int
    requires_limits: bool = False
    trusts_labels: bool = True


@dataclass(slots=True)
class ContainerStartReader:
    """A `StartReader` of Docker's authorization plugin.

    Args:
        find: returns a listed container by its id, the beginning of it, or its name.
        read_host: returns the parts of the machine to which containers can be bound.
        obey: returns a container with the GPUs of its environment, where that counts.
    """

    rules: StartRules
    find: Callable[[str], Container | None]
    read_host: Callable[[], HostTopology]
    obey: Callable[[Container], Container]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _created: dict[str, Container] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)  # id -> time of the question

    def read(self, question: Mapping[str, Any], topology: NumaTopology) -> Guest | None:
        try:
            return self._read(question, topology)
        except ContainerError as error:
            raise HostDataError(_SOURCE, str(error)) from error

    def _read(self, question: Mapping[str, Any], topology: NumaTopology) -> Guest | None:
        ask, reference = question.get("ask"), str(question.get("id") or "")
        document = question.get("document")
        if ask in ("create", "created"):
            if document is None:
                raise ClaimRefusedError(
                    ["the request is too large to be read by plugins, or has a key more than once"]
                )
            name = str(question.get("name") or "")
            container = _require_readable(lambda: _parse(document, reference, name))
            if ask == "created":
                self._remember(container)
                return None
        elif ask in ("start", "update"):
            container = self._find(reference)
            if ask == "start":
                self._note_start(container)
            else:
                if not (container.is_alive or self._was_started(container)):
                    return None
                known = container
                container = _require_readable(lambda: _change(known, document))
        else:
            raise HostDataError(_SOURCE, f"unknown question {ask!r}")
        return self._build(replace(container, state="running"), topology)

    def _build(self, container: Container, topology: NumaTopology) -> Guest:
        container = self.obey(container)
        if self.rules.requires_limits:
            lacking = [
                name
                for name, has_limit in (
                    ("CPUs", container.has_cpu_limit),
                    ("memory", container.memory_mb is not None),
                )
                if not has_limit
            ]
            if lacking:
                raise ClaimRefusedError([f"no limit of {' and '.join(lacking)} is set"])
        if container.id == _UNKNOWN_ID:
            uuid = str(uuid4())
        else:
            uuid = parse_workload_uuid(
                container.id, container.name, container.labels, self.rules.trusts_labels
            )
        guest = replace(build_guest(container, uuid, self.rules.unlimited_mb), disk_mb=0)
        host = self.read_host()
        if not host.topology.cells:
            host = replace(host, topology=topology)
        pins = derive_pins(container, guest, host)
        return replace(guest, pins=pins, details={**guest.details, **describe_gpus(container)})

    def _remember(self, container: Container) -> None:
        with self._lock:
            self._created[container.id] = container
            while len(self._created) > KEPT_CONTAINERS:
                del self._created[next(iter(self._created))]

    def _note_start(self, container: Container) -> None:
        now = time.monotonic()
        with self._lock:
            self._started = {
                each: at for each, at in self._started.items() if now - at < STARTED_SECONDS
            }
            self._started[container.id] = now

    def _was_started(self, container: Container) -> bool:
        with self._lock:
            started_at = self._started.get(container.id)
        return started_at is not None and time.monotonic() - started_at < STARTED_SECONDS

    def _find(self, reference: str) -> Container:
        with self._lock:
            created = [c for c in self._created.values() if c.is_meant_by(reference)]
        found = self.find(reference) or (created[-1] if created else None)
        if found is None:
            raise HostDataError(_SOURCE, f"container {reference} is not known yet")
        return found


def _require_readable(read: Callable[[], Container]) -> Container:
    """Return what a request describes; the engine may accept what cannot be read here."""
    try:
        return read()
    except ContainerError as error:
        raise ClaimRefusedError([f"the request cannot be read: {error}"]) from error


def _parse(document: Any, container_id: str, name: str) -> Container:
    """Return the container that a request to create one describes."""
    config = _name_keys(document)
    return parse_container(
        {
            "Id": container_id or _UNKNOWN_ID,
            "Name": name,
            "HostConfig": config.get("HostConfig") or {},
            "State": {"Status": "created"},
            "Config": config,
        }
    )


def _name_keys(document: Any) -> dict[str, Any]:
    """Return an object with its keys as they are documented: the engine ignores their case.

    Of several numbers or texts that differ by case alone the last one counts there; objects
    and lists would be merged.

    >>> _name_keys({"Memory": 1, "memory": 2, "Other": 3})
    {'Memory': 2, 'Other': 3}
    """
    if not isinstance(document, Mapping):
        raise ContainerError("the request is not an object")
    named: dict[str, Any] = {}
    for key, value in document.items():
        name = _KEYS.get(str(key).lower(), str(key))
        if isinstance(named.get(name), list | Mapping):
            raise ContainerError(f"the request has {name} more than once")
        named[name] = _name_inner_keys(value) if name in _STRUCTURES else value
    return named


def _name_inner_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_name_inner_keys(item) for item in value]
    return _name_keys(value) if isinstance(value, Mapping) else value


def _change(container: Container, document: Any) -> Container:
    """Return a container with the limits that a request to update it sets."""
    new = parse_container(
        {
            "Id": container.id,
            "HostConfig": _name_keys(document),
            "State": {"Status": container.state},
        }
    )
    changed = replace(
        container,
        memory_mb=container.memory_mb if new.memory_mb is None else new.memory_mb,
        cpus=new.cpus or container.cpus,
    )
    if not new.vcpu_milli:
        return changed
    return replace(
        changed,
        vcpu_milli=new.vcpu_milli,
        cpu_rule=new.cpu_rule,
        has_cpu_limit=new.has_cpu_limit or container.has_cpu_limit,
    )
