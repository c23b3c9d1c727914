"""All nodes as a scheduler reads them: who moved, and what admission needs of those that did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodetracker.model.claim import Claim
from nodetracker.model.guest import Guest
from nodetracker.model.node import NodeValues
from nodetracker.model.pci import TrackedDevice
from nodetracker.model.service import ServiceGate


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """Just enough of a row to know whether it is the one that was read, and unchanged since.

    Attributes:
        created_at: tells a row from a later one that was given its id again.
    """

    id: int
    host: str
    nodename: str
    generation: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerVersions:
    """The versions of all nodes with their services' gates, read by one statement.

    Attributes:
        now: the database's clock, UTC.
        services: host -> its agent's; a host without one is absent.
    """

    now: datetime
    nodes: tuple[LedgerVersion, ...]
    services: Mapping[str, ServiceGate]


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """What admission needs of one node.

    Attributes:
        values: only what admission needs; the rest is as a new row's.
        claims: active ones.
        unclaimed: guests that no claim covers, by uuid.
        devices: by address.
    """

    version: LedgerVersion
    values: NodeValues
    claims: tuple[Claim, ...]
    unclaimed: Mapping[str, Guest]
    devices: Mapping[str, TrackedDevice] = field(default_factory=dict)
