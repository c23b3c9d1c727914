"""Read what the engine's plugin asks before a container is created, started or changed.

The engine waits for the answer, so nothing here asks the engine: containers are those of its
last listing, and those that were created since.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from uuid import uuid4

from nodetracker.model.errors import ClaimRefusedError, HostDataError
from nodetracker.model.guest import Guest
from nodetracker.model.numa import NumaTopology
from nodetracker.process.clock import utc_clock
from nodetracker.virt.docker.containers import Container, ContainerError, parse_container
from nodetracker.virt.docker.guests import (
    HostTopology,
    assign_uuids,
    build_guest,
    derive_pins,
    describe_gpus,
)

KEPT_CONTAINERS = 1000
"""Containers that are remembered as they were created or changed until the engine lists them."""

STARTED_SECONDS = 60.0
"""How long the last listing may lack that a container was started, which was asked about."""

_SOURCE = "plugin"
_REPLACE_LABEL = "com.docker.compose.replace"
_SHORT_ID = 12
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
        list_listed: returns the containers as last listed, each the same object until it is
            read again.
        read_host: returns the parts of the machine to which a container can be bound.
        obey: returns a container with the GPUs of its environment, where that counts.
    """

    rules: StartRules
    list_listed: Callable[[], Sequence[Container]]
    read_host: Callable[[Container], HostTopology]
    obey: Callable[[Container], Container]
    hears_ends: ClassVar[bool] = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: dict[str, tuple[Container | None, Container]] = field(default_factory=dict)
    """Id -> a container as listed when it was created or changed, and as it is since."""
    _started: dict[str, float] = field(default_factory=dict)  # id -> time of the question

    def read(self, question: Mapping[str, Any], topology: NumaTopology) -> Guest | None:
        try:
            return self._read(question, topology)
        except ContainerError as error:
            raise HostDataError(_SOURCE, str(error)) from error

    def _read(self, question: Mapping[str, Any], topology: NumaTopology) -> Guest | None:
        ask, reference = question.get("ask"), str(question.get("id") or "")
        document = question.get("document")
        known = self._list_known()
        if ask in ("create", "created"):
            if document is None:
                raise ClaimRefusedError(
                    ["the request is too large to be read by plugins, or has a key more than once"]
                )
            name = str(question.get("name") or "")
            container = _require_readable(lambda: _parse(document, reference, name))
            if ask == "created":
                self._note(None, container)
                return None
            replaced = _find_replaced(container, known.values())
            if replaced is not None:
                container = replace(container, id=replaced.id)
            known = {**known, container.id: container}
        elif ask in ("start", "update", "updated"):
            container = _find(reference, known.values())
            if ask == "start":
                self._note_start(container)
            else:
                before = container
                container = _require_readable(lambda: before.change_limits(_name_keys(document)))
                if ask == "updated":
                    listed = {each.id: each for each in self.list_listed()}
                    self._note(listed.get(before.id), container)
                    return None
                if not (container.is_alive or self._was_started(container)):
                    return None
        else:
            raise HostDataError(_SOURCE, f"unknown question {ask!r}")
        uuids, _ = assign_uuids(known.values(), self.rules.trusts_labels)
        return self._build(replace(container, state="running"), uuids[container.id], topology)

    def _build(self, container: Container, uuid: str, topology: NumaTopology) -> Guest:
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
        guest = replace(build_guest(container, uuid, self.rules.unlimited_mb), disk_mb=0)
        host = self.read_host(container)
        if not host.topology.cells:
            host = replace(host, topology=topology)
        pins = derive_pins(container, guest, host)
        return replace(guest, pins=pins, details={**guest.details, **describe_gpus(container)})

    def _list_known(self) -> dict[str, Container]:
        """Return the containers by id: as listed, or as created and changed since."""
        listed = {container.id: container for container in self.list_listed()}
        with self._lock:
            # As it was listed: a container that was read again since is known better.
            self._news = {
                key: (before, container)
                for key, (before, container) in self._news.items()
                if listed.get(key) is before
            }
            return {**listed, **{key: container for key, (_, container) in self._news.items()}}

    def _note(self, listed: Container | None, container: Container) -> None:
        with self._lock:
            self._news.pop(container.id, None)
            self._news[container.id] = (listed, container)
            while len(self._news) > KEPT_CONTAINERS:
                del self._news[next(iter(self._news))]

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


def _find(reference: str, known: Collection[Container]) -> Container:
    """Return what a request means: by id, else by name, else by the beginning of an id.

    Of several with a name the engine has the one that was created last.
    """
    name = reference.removeprefix("/")
    for found in (
        [container for container in known if container.id == name],
        [container for container in known if container.name == name],
        [container for container in known if name and container.id.startswith(name)],
    ):
        if found:
            return max(found, key=lambda container: container.created)
    raise HostDataError(_SOURCE, f"container {reference} is not known yet")


def _find_replaced(container: Container, known: Collection[Container]) -> Container | None:
    """Return the container in whose place Compose creates one; it is removed before the start.

    Source: Compose 2, ``recreateContainer``: the name is made of the old one's id and name.
    """
    old_id, _, _ = container.name.partition("_")
    if _REPLACE_LABEL not in container.labels or len(old_id) != _SHORT_ID:
        return None
    return next((each for each in known if each.id.startswith(old_id)), None)


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
            "Id": container_id or uuid4().hex * 2,
            "Name": name,
            "Created": utc_clock().isoformat(),
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
