"""Versions of all nodes, and the data of changed nodes that a scheduler needs for admission."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceAvailability


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """The columns of a row that show whether it has changed since it was read.

    Attributes:
        created_at: distinguishes the row from a later one with a reused id.
    """

    id: int
    host: str
    nodename: str
    generation: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerVersions:
    """The versions of all nodes and the availability of their services, read in one statement.

    Attributes:
        now: the database's clock, UTC.
        services: host -> availability of its agent; hosts without an agent are absent.
    """

    now: datetime
    nodes: tuple[LedgerVersion, ...]
    services: Mapping[str, ServiceAvailability]


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """The data of one node that admission needs.

    Attributes:
        values: only the columns that admission needs; the others have defaults.
        claims: active claims.
        unclaimed: guests without a claim, by uuid.
        devices: address -> device.
        larger: listed guests with more CPUs, memory or disk than the claim that
            is assigned to them, by uuid.
    """

    version: LedgerVersion
    values: NodeValues
    claims: tuple[Claim, ...]
    unclaimed: Mapping[str, Guest]
    devices: Mapping[str, TrackedDevice] = field(default_factory=dict)
    larger: Mapping[str, Guest] = field(default_factory=dict)
