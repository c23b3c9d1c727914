"""Nodes: the driver's snapshot, the stored record and the view that the record should match.

A reading is a `HostSnapshot`. A row is a `NodeRecord`: identity and
`NodeValues`, its guests and its devices. Accounting turns a snapshot into a
`NodeView`, which has the shape of a record; data flows only in that direction.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from nodetracker.model.claim import Claim, Move
from nodetracker.model.fact import Fact, FactEntry, failed
from nodetracker.model.guest import Guest, GuestListing
from nodetracker.model.host import (
    ContainerEngine,
    CpuInfo,
    Gpu,
    HostProblem,
    HypervisorInfo,
    MemoryInfo,
    StorageInfo,
    SystemInfo,
)
from nodetracker.model.numa import NumaTopology
from nodetracker.model.pci import MdevType, PciDevice, TrackedDevice
from nodetracker.model.service import AdminState
from nodetracker.model.shapes import DAMAGE
from nodetracker.model.warning import HostWarning

_VOLATILE = {"volatile": True}


@dataclass(frozen=True, slots=True)
class NodeListing:
    """The nodes that a driver currently manages.

    Attributes:
        nodenames: in the driver's order, without duplicates.
        unreachable: sources that did not respond; if there are any, no row
            counts as an orphan.
        is_ready: False if no source of guests responds, though nodes are known.
    """

    nodenames: tuple[str, ...]
    unreachable: tuple[str, ...] = ()
    is_ready: bool = True


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node of a stored row, by which a driver recognizes one that its source calls otherwise.

    Attributes:
        source: of its hypervisor, as last read; "" if never.
    """

    nodename: str
    uuid: str
    source: str


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """One reading of one node. Facts are independent: each is fresh or failed.

    Attributes:
        engine: the container engine, None on a node without one.
        measured: further measurements of the driver and of monitors by name,
            added to the row's metrics. None: the value is unavailable this time.
        uuid: the node's stable uuid, from drivers that know one.
        overhead_mb: memory in MiB that the driver adds to each guest's memory.
        tracks_resources: False if the driver does not know the guests' usage;
            claims are then recorded without admission.
        netdevs: name of a network interface -> address of its PCI function.
        mdev_types: address of a PCI function -> types of mediated devices that it supports.
        pci_problems: files of these that could not be used; the other facts name their own.
        warnings: problems found by the driver in addition to failed facts.
    """

    nodename: str
    hypervisor: Fact[HypervisorInfo]
    cpu: Fact[CpuInfo]
    memory: Fact[MemoryInfo]
    numa: Fact[NumaTopology]
    storage: Fact[StorageInfo]
    pci: Fact[tuple[PciDevice, ...]]
    gpus: Fact[tuple[Gpu, ...]]
    system: Fact[SystemInfo]
    guests: Fact[GuestListing]
    engine: Fact[ContainerEngine] | None = None
    measured: Mapping[str, int | None] = field(default_factory=dict)
    uuid: str | None = None
    overhead_mb: int = 0
    traits: tuple[str, ...] = ()
    tracks_resources: bool = True
    netdevs: Mapping[str, str] = field(default_factory=dict)
    mdev_types: Mapping[str, tuple[MdevType, ...]] = field(default_factory=dict)
    pci_problems: tuple[HostProblem, ...] = ()
    warnings: tuple[HostWarning, ...] = ()

    def host_problems(self) -> tuple[HostProblem, ...]:
        """Return the files and GPUs of the host that could not be used, each one once."""
        gpus = (
            HostProblem(gpu.address, f"the GPU {gpu.problem}; it is not offered")
            for gpu in self.gpus.value or ()
            if gpu.problem and not gpu.is_silent
        )
        facts = (self.cpu, self.memory, self.numa, self.storage, self.system)
        known = [value.problems for fact in facts if (value := fact.value) is not None]
        found: dict[str, HostProblem] = {}
        for problem in chain(*known, self.pci_problems, gpus):
            found.setdefault(problem.path, problem)
        return tuple(found.values())

    def facts(self) -> dict[str, Fact[Any]]:
        """Return the node's facts by name, in a fixed order."""
        facts = {name: getattr(self, name) for name in FACT_NAMES}
        return {name: fact for name, fact in facts.items() if fact is not None}


FACT_NAMES = (
    "hypervisor", "cpu", "memory", "numa", "storage", "pci", "gpus", "system", "guests", "engine",
)  # fmt: skip


ADMISSION = "admission_"
"""Prefix of keys of the column ``engine``: driver -> mode, see `Policy.engine_modes`."""

NOT_LISTED = "the node is no longer listed"
"""Error of the facts of a node that enough complete audits missed."""


def failed_snapshot(nodename: str, source: str, error: str) -> HostSnapshot:
    """Build the snapshot of a node that could not be read at all: every fact failed."""
    facts: dict[str, Any] = dict.fromkeys(FACT_NAMES, failed(source, error))
    return HostSnapshot(nodename, **facts | {"engine": None})


@dataclass(frozen=True, slots=True)
class NodeValues:
    """The columns of a ``compute_nodes`` row that accounting computes.

    Names and units are Nova's and Zun's (MiB, GiB); every field is a column.
    JSON columns contain plain lists, dicts, strings and numbers. Fields marked
    volatile are measurements: they affect neither generation nor history.
    """

    vcpus: int = 0
    vcpus_used: int = 0
    memory_mb: int = 0
    memory_mb_used: int = 0
    local_gb: int = 0
    local_gb_used: int = 0
    free_ram_mb: int = 0
    free_disk_gb: int = 0
    current_workload: int = 0
    running_vms: int = 0
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    hypervisor_uuid: str | None = None
    host_ip: str = ""
    cpu_info: Mapping[str, Any] = field(default_factory=dict)
    supported_instances: list[list[str]] = field(default_factory=list)
    pci_stats: list[dict[str, Any]] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)
    numa_topology: Mapping[str, Any] = field(default_factory=dict)
    cpu_allocation_ratio: float = 0.0
    ram_allocation_ratio: float = 0.0
    disk_allocation_ratio: float = 0.0
    ratio_origins: Mapping[str, str] = field(default_factory=dict)
    cpu_used: float = 0.0
    disk_used: float = 0.0
    total_containers: int = 0
    running_containers: int = 0
    paused_containers: int = 0
    stopped_containers: int = 0
    architecture: str = ""
    os_type: str = ""
    os: str = ""
    kernel_version: str = ""
    boot_id: str | None = None
    booted_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    runtimes: list[str] = field(default_factory=list)
    disk_quota_supported: bool = False
    engine: Mapping[str, Any] = field(default_factory=dict)
    enable_cpu_pinning: bool = False
    pcpus: int = 0
    pcpus_used: int = 0
    reserved: Mapping[str, Any] = field(default_factory=dict)
    overhead: Mapping[str, Any] = field(default_factory=dict)
    tracks_resources: bool = True
    inventory: Mapping[str, Any] = field(default_factory=dict)
    traits: list[str] = field(default_factory=list)
    system: Mapping[str, Any] = field(default_factory=dict)
    disks: list[dict[str, Any]] = field(default_factory=list)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    mdev_types: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, FactEntry] = field(default_factory=dict)
    mem_available: int | None = field(default=None, metadata=_VOLATILE)
    disk_available_least: int | None = field(default=None, metadata=_VOLATILE)
    metrics: Mapping[str, int] = field(default_factory=dict, metadata=_VOLATILE)


NODE_COLUMNS = tuple(item.name for item in dataclasses.fields(NodeValues))
VOLATILE_COLUMNS = frozenset(
    item.name for item in dataclasses.fields(NodeValues) if item.metadata.get("volatile")
)
MEASURE_INTERVAL_SECONDS = 300
"""Minimum interval between writes of only volatile columns."""
NODE_TIMES = ("created_at", "updated_at")
"""The times of a row."""
ADMISSION_COLUMNS = (
    "vcpus", "vcpus_used", "pcpus", "pcpus_used", "memory_mb", "memory_mb_used", "local_gb",
    "local_gb_used", "cpu_used", "disk_used", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "reserved", "overhead", "inventory", "traits", "facts",
    "numa_topology", "tracks_resources", "gpus", "pci_stats",
)  # fmt: skip
"""What admission needs of a row: ledger transactions and schedulers read no other column."""


@dataclass(frozen=True, slots=True)
class NodeVersion:
    """The columns of a row that show whether it has changed since it was read."""

    id: int
    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VersionSums:
    """The number of a host's rows, and the sums of their ids, generations and epochs.

    Rows that differ have other sums: generation and epoch of a row only rise, so nothing that
    is written to some rows cancels out what is written to others. Rows that others delete are
    noticed by the number, unless as many are given to the host between two audits, and ids,
    generations and epochs of both add up to the same; its agent knows those that it creates
    itself. Rows that were changed by hand or restored by themselves may have the same sums as
    well. All of these are found when all rows are read again; until then no write is wrong,
    because each compares the generation of its row under a lock.

    >>> VersionSums.of([NodeVersion(4, 7, 1), NodeVersion(5, 1, 1)])
    VersionSums(nodes=2, ids=9, generations=8, epochs=2)
    """

    nodes: int
    ids: int
    generations: int
    epochs: int

    @classmethod
    def of(cls, rows: "Collection[NodeVersion | NodeRecord]") -> "VersionSums":
        """Return the sums of rows."""
        return cls(
            len(rows),
            sum([row.id for row in rows]),
            sum([row.generation for row in rows]),
            sum([row.epoch for row in rows]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """A host's services row and the database's time, read in one statement.

    Attributes:
        now: the database's clock, UTC.
        epoch, service_uuid, report_count: of the services row; an agent that
            took over another row, or has a lower epoch, is fenced.
        admin: of that row.
    """

    now: datetime
    epoch: int
    service_uuid: str
    report_count: int
    admin: AdminState = field(default_factory=AdminState)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVersions(HostState):
    """With the versions of all rows of the host, by nodename."""

    by_nodename: Mapping[str, NodeVersion]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSums(HostState):
    """With the sums of the versions of all rows of the host.

    Attributes:
        sums: None where a row has a version that cannot be summed up.
    """

    sums: VersionSums | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node as stored: a ``compute_nodes`` row with its guests, devices and claims.

    Attributes:
        claims: active claims, and released ones whose guest may still appear, by uuid.
        moves: open migrations that involve one of those claims.
        has_stale_limits: an earlier version wrote the row without the columns by which
            candidates are found.
        damaged: columns that have values which they may not have. Others are in their place,
            and the facts are unknown, until the next audit writes the columns.
    """

    id: int
    uuid: str
    host: str
    nodename: str
    generation: int
    epoch: int
    values: NodeValues
    guests: Mapping[str, Guest] = field(default_factory=dict)
    devices: Mapping[str, TrackedDevice] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    has_stale_limits: bool = False
    damaged: tuple[str, ...] = field(default=(), metadata=DAMAGE)

    def name_workload(self, uuid: str) -> str:
        """Return the name of a workload by its guest or a claim, or else its uuid."""
        guest = self.guests.get(uuid)
        names = [
            claim.workload.name for claim in self.claims.values() if claim.workload.uuid == uuid
        ]
        return next(filter(None, (guest.name if guest else "", *names)), uuid)


@dataclass(frozen=True, slots=True)
class NodeView:
    """The content that a row should have: a snapshot combined with the stored ledger.

    Attributes:
        uuid: the node's stable uuid if its driver knows one.
        missing: facts that are missing to create a new row; empty when the
            view can be written.
        warnings: current warnings about this node.
        unread: facts without a value, so that warnings about them could not be evaluated.
    """

    nodename: str
    uuid: str | None
    values: NodeValues
    guests: Mapping[str, Guest]
    devices: Mapping[str, TrackedDevice]
    claims: Mapping[str, Claim] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[HostWarning, ...] = ()
    unread: frozenset[str] = frozenset()
