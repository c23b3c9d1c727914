"""Values of the libvirt driver, and the parser of ``connection_uris``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from nodetracker.model.audit import EventKind
from nodetracker.virt.libvirt.ceph import CephSettings

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,255})=(?P<uri>[A-Za-z][A-Za-z0-9+.-]*:.*)")
_PASSWORD = re.compile(r"(?<=:)[^:@/]*(?=@)")


@dataclass(frozen=True, slots=True)
class HypervisorEndpoint:
    """One entry of ``connection_uris``.

    Attributes:
        name: the node's name, None = the hypervisor's hostname.
    """

    uri: str
    name: str | None = None

    @property
    def is_local(self) -> bool:
        return urlsplit(self.uri).hostname is None

    @property
    def source(self) -> str:
        """Return the URI for facts and log lines, without a password."""
        return _PASSWORD.sub("***", self.uri)


def parse_endpoints(entries: Sequence[str]) -> tuple[HypervisorEndpoint, ...]:
    """Parse the entries of ``connection_uris``, each ``[name=]URI``.

    Raises:
        ValueError: an entry is not valid, or two have the same URI or name;
            the message names both.

    >>> parse_endpoints(["qemu:///system", "rack2=qemu+ssh://root@kvm-2/system"])[1].name
    'rack2'
    """
    endpoints: list[HypervisorEndpoint] = []
    for entry in entries:
        text = entry.strip()
        match = _NAMED.fullmatch(text)
        endpoint = HypervisorEndpoint(match["uri"], match["name"]) if match else None
        if endpoint is None and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:.*", text):
            endpoint = HypervisorEndpoint(text)
        if endpoint is None:
            raise ValueError(f"invalid value {text!r}: expected URI or name=URI")
        for other in endpoints:
            _check_distinct(other, endpoint)
        endpoints.append(endpoint)
    if not endpoints:
        raise ValueError("at least one URI is required")
    return tuple(endpoints)


def _check_distinct(one: HypervisorEndpoint, other: HypervisorEndpoint) -> None:
    if one.name is not None and one.name == other.name:
        raise ValueError(f"duplicate name {one.name!r} of {one.source} and {other.source}")
    if one.uri == other.uri and one.name is other.name is None:
        raise ValueError(f"duplicate URI {one.source}; use name=URI to give the nodes names")


@dataclass(frozen=True, slots=True)
class Identity:
    """Hostname, type and version of a hypervisor.

    Attributes:
        version: 1,000,000 x major + 1,000 x minor + micro.
    """

    hostname: str
    type: str
    version: int


@dataclass(frozen=True, slots=True)
class DomainStatistics:
    """Bulk statistics of one domain.

    Attributes:
        values: libvirt's own keys, e.g. ``state.state``, ``block.0.capacity``.
    """

    uuid: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """One active storage pool: its document, its capacity and available bytes."""

    name: str
    xml: str
    capacity_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class EventHandlers:
    """Handlers of a connection's events; they run on libvirt's event thread and must not block.

    Attributes:
        on_close: called once with the reason when the connection breaks.
        on_guest_event: called with the kind and the guest's uuid.
    """

    on_close: Callable[[str], None]
    on_guest_event: Callable[[EventKind, str], None]
    on_device_event: Callable[[], None]


@dataclass(frozen=True, slots=True)
class LibvirtSettings:
    """Driver options that affect how a node is read.

    Attributes:
        file_backed_memory: MiB that the node offers to guests, 0 = its own memory.
        images_type: how guests' disks are stored, None = as files.
        reserve_image_cache: reserve the space that the image cache uses.
        ceph: how much a pool of type rbd can store.
    """

    file_backed_memory: int = 0
    images_type: str | None = None
    reserve_image_cache: bool = True
    ceph: CephSettings = field(default_factory=CephSettings)
