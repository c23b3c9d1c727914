"""Value types of the libvirt driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.audit import EventKind


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
        on_device_event: called when a host device was added, removed or changed.
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
    """

    file_backed_memory: int = 0
    images_type: str | None = None
    reserve_image_cache: bool = True
