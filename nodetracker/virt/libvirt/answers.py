"""What one connection answers, as plain values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.event import EventKind


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a hypervisor is.

    Attributes:
        version: 1,000,000 x major + 1,000 x minor + micro.
    """

    hostname: str
    type: str
    version: int


@dataclass(frozen=True, slots=True)
class DomainStatistics:
    """What bulk statistics tell of one domain.

    Attributes:
        values: libvirt's own keys, e.g. ``state.state``, ``block.0.capacity``.
    """

    uuid: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """One active storage pool: its document, and bytes in all and available."""

    name: str
    xml: str
    capacity_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whom a connection tells of events; called on libvirt's event thread, never to wait there.

    Attributes:
        closed: with the reason, once, when the connection breaks.
        guest: kind and the guest's uuid.
        devices: when a host device came, went or is another.
    """

    closed: Callable[[str], None]
    guest: Callable[[EventKind, str], None]
    devices: Callable[[], None]
