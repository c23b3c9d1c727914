"""Tables as the code of this version uses them, and what their columns may contain.

The revisions in ``versions`` create them; a test compares the two. All
databases compare strings by their bytes, so names that differ in case differ.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from nodetracker.db import columns
from nodetracker.db.columns import MAX_RATIO, NODE_SHAPES
from nodetracker.db.connection.dialect import (
    JsonText,
    Line,
    LongText,
    Real,
    UtcDateTime,
    Whole,
    greatest,
)
from nodetracker.model.change import ChangeKind
from nodetracker.model.claim import (
    ACTIVE_STATES,
    OPEN,
    ClaimKind,
    ClaimState,
    MigrationStatus,
    MigrationType,
)
from nodetracker.model.cpuset import MAX_CPU_ID
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.pci import PciDeviceType, PciStatus
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.shapes import LARGEST, Shape
from nodetracker.model.text import PCI_ID_LENGTH, TEXT_LENGTH
from nodetracker.model.tolerance import Verdict
from nodetracker.model.warning import WARNING_ITEM_LENGTH

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

CANDIDATE_INDEX = "ix_compute_nodes_screening"

CANDIDATE_COLUMNS = (
    "place", "id", "admission_flags", "memory_mb_free", "ordinary_mb_free", "vcpu_milli_free",
    "disk_mb_free", "vcpu_milli_claimable", "pcpus_claimable", "memory_mb_claimable",
    "overhead_mb", "disk_mb_claimable", "generation", "limits_generation", "host",
    "hypervisor_hostname",
)  # fmt: skip
"""All that `db.candidates` reads of nodes for most requests, in the order of an index.

These are as many as MySQL allows.

It starts with the order in which nodes are found, by which no other statement searches, so
that none of them locks rows by way of the index.
"""


def row_id() -> "sa.Column[int]":
    """Return the primary key."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", kind, primary_key=True, autoincrement=True)


def node_id() -> "sa.Column[int]":
    """Return the id of the row's node."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("compute_node_id", kind, sa.ForeignKey("compute_nodes.id"), nullable=False)


def text(name: str, length: int = TEXT_LENGTH, nullable: bool = False) -> "sa.Column[str]":
    """Return a column of text of limited length."""
    return sa.Column(name, Line(length), nullable=nullable)


def choice(name: str, kind: type[StrEnum], unknown: StrEnum | None = None) -> "sa.Column[str]":
    """Return a column of an enumeration's values.

    Args:
        unknown: as what any other value is read, None = the last one.
    """
    values = [member.value for member in kind if member is not unknown]
    if unknown is not None:
        values.append(unknown.value)
    return sa.Column(name, Line(32, tuple(values)), nullable=False)


def long_text(name: str, nullable: bool = False) -> "sa.Column[str]":
    """Return a column of text of several lines."""
    return sa.Column(name, LongText(), nullable=nullable)


def integer(
    name: str, nullable: bool = False, low: int = 0, high: int = LARGEST
) -> "sa.Column[int]":
    """Return a column of 64-bit integers of a range."""
    return sa.Column(name, Whole(low, high), nullable=nullable)


def signed(name: str, nullable: bool = False) -> "sa.Column[int]":
    """Return a column of 64-bit integers that may be negative."""
    return integer(name, nullable, -LARGEST)


def amount(name: str, high: int = 2**44) -> "sa.Column[int]":
    """Return a column of a capacity, of which the sums of all nodes are 64-bit integers."""
    return integer(name, high=high)


def double(name: str, low: float = 0, high: float = LARGEST) -> "sa.Column[float]":
    """Return a column of floating-point numbers of a range."""
    return sa.Column(name, Real(low, high), nullable=False)


_FREE = {
    "memory_mb_free": "(memory_mb_limit - memory_mb_used) * 1e0",
    "ordinary_mb_free": "(memory_mb_limit - memory_mb_used - huge_mb_unused) * 1e0",
    "vcpu_milli_free": "vcpu_milli_limit - round(cpu_used * 1000e0)",
    "disk_mb_free": "disk_mb_limit - round(disk_used * 1024e0)",
}

_CLAIMABLE = {
    "vcpu_milli_claimable": (_FREE["vcpu_milli_free"], "vcpus * 1000e0"),
    "pcpus_claimable": ("(pcpus - pcpus_used) * 1e0", "pcpus * 1e0"),
    "memory_mb_claimable": (_FREE["memory_mb_free"], "memory_mb * 1e0"),
    "disk_mb_claimable": (_FREE["disk_mb_free"], "local_gb * 1024e0"),
}
"""Column -> what is free and the total of an amount of a node."""


def amount_columns() -> "Iterator[sa.Column[float]]":
    """Yield the columns of a node's amounts that the database computes, as doubles.

    They are the free amounts, of memory as a whole and outside huge pages (NULL in a row of a
    version that does not know these), and the largest amounts that a claim can take: the
    smaller of what is free and the total, and of a node whose driver does not track
    resources, which refuses no amount, 2**53.
    """
    amounts = dict(_FREE)
    for name, (free, total) in _CLAIMABLE.items():
        smaller = f"WHEN {free} < {total} THEN {free} ELSE {total}"
        amounts[name] = (
            f"CASE WHEN (admission_flags & 1) <> 0 THEN 9007199254740992e0 {smaller} END"
        )
    for name, expression in amounts.items():
        yield sa.Column(name, Real(), sa.Computed(expression, persisted=True))


def fullness() -> "sa.Column[float]":
    """Return the allocated share of what may be allocated of a node's fullest resource.

    Lists are ordered by it. The database computes it as the other amounts, so that it is right
    whatever version writes a row; it agrees with `Capacity.fill`. The column ``reserved`` is JSON:
    what is reserved follows from the total, the ratio and the limit.
    """
    cpu = _fill("vcpus * 1000e0", "round(cpu_used * 1000e0)", "vcpu_milli_limit", "cpu")
    disk = _fill("local_gb * 1024e0", "round(disk_used * 1024e0)", "disk_mb_limit", "disk")
    pcpus = (
        "CASE WHEN pcpus >= 1 THEN pcpus_used * 1e0 / pcpus WHEN pcpus_used > 0 THEN 2e0 "
        "ELSE 0e0 END"
    )
    memory = (
        "CASE WHEN memory_mb_limit >= 1 THEN memory_mb_used * 1e0 / memory_mb_limit "
        "WHEN memory_mb_used > 0 THEN 1e0 ELSE 0e0 END"
    )
    fullest = greatest(*map(sa.text, (cpu, pcpus, memory, disk)))
    return sa.Column("fullness", Real(), sa.Computed(fullest, persisted=True))


def _fill(total: str, used: str, limit: str, ratio: str) -> str:
    """Return the share of a resource whose limit is without what is reserved.

    A ratio too small to divide by is one that only a damaged row has.
    """
    ratio = f"{ratio}_allocation_ratio"
    reserved = f"CASE WHEN {ratio} >= 1e-3 THEN {total} - {limit} / {ratio} ELSE 0e0 END"
    whole = f"{limit} + {reserved}"
    return (
        f"CASE WHEN {whole} >= 1 THEN ({used} + {reserved}) / ({whole}) "
        f"WHEN {used} > 0 THEN 2e0 WHEN {reserved} >= 1 THEN 1e0 ELSE 0e0 END"
    )


def flag(name: str) -> "sa.Column[bool]":
    """Return a column of booleans."""
    return sa.Column(name, sa.Boolean(), nullable=False)


def json_text(
    name: str, shape: Shape, is_list: bool = False, nullable: bool = False
) -> "sa.Column[Any]":
    """Return a column of JSON, stored as text."""
    return sa.Column(name, JsonText(shape, is_list), nullable=nullable)


def node_json(name: str, is_list: bool = False, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of JSON of nodes."""
    return json_text(name, NODE_SHAPES[name], is_list, nullable)


def time(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of times in UTC."""
    return sa.Column(name, UtcDateTime(), nullable=nullable)


compute_nodes = sa.Table(
    "compute_nodes",
    metadata,
    row_id(),
    text("uuid", 64),
    text("host"),
    text("hypervisor_hostname"),
    integer("generation"),
    integer("epoch"),
    time("created_at"),
    time("updated_at", nullable=True),
    amount("vcpus", 2**24),
    signed("vcpus_used"),
    amount("memory_mb"),
    signed("memory_mb_used"),
    amount("local_gb", 2**34),
    signed("local_gb_used"),
    signed("free_ram_mb"),
    signed("free_disk_gb"),
    integer("current_workload"),
    integer("running_vms"),
    text("hypervisor_type"),
    integer("hypervisor_version"),
    text("hypervisor_uuid", nullable=True),
    text("host_ip"),
    node_json("cpu_info"),
    node_json("supported_instances", is_list=True),
    node_json("pci_stats", is_list=True),
    node_json("stats"),
    node_json("numa_topology"),
    double("cpu_allocation_ratio", high=MAX_RATIO),
    double("ram_allocation_ratio", high=MAX_RATIO),
    double("disk_allocation_ratio", high=MAX_RATIO),
    node_json("ratio_origins", nullable=True),
    double("cpu_used", -LARGEST),
    double("disk_used", -LARGEST),
    integer("total_containers"),
    integer("running_containers"),
    integer("paused_containers"),
    integer("stopped_containers"),
    text("architecture"),
    text("os_type"),
    text("os"),
    text("kernel_version"),
    text("boot_id", nullable=True),
    time("booted_at", nullable=True),
    node_json("labels"),
    node_json("runtimes", is_list=True),
    node_json("engine", nullable=True),
    flag("disk_quota_supported"),
    flag("enable_cpu_pinning"),
    amount("pcpus", 2**24),
    signed("pcpus_used"),
    node_json("reserved"),
    node_json("overhead"),
    flag("tracks_resources"),
    node_json("inventory"),
    node_json("traits", is_list=True),
    node_json("system"),
    node_json("disks", is_list=True),
    node_json("gpus", is_list=True),
    node_json("mdev_types", nullable=True),
    node_json("facts"),
    signed("mem_available", nullable=True),
    signed("disk_available_least", nullable=True),
    node_json("metrics"),
    signed("vcpu_milli_limit"),
    signed("memory_mb_limit"),
    signed("huge_mb_unused", nullable=True),
    signed("disk_mb_limit"),
    signed("overhead_mb"),
    integer("admission_flags"),
    integer("limits_generation"),
    integer("place"),
    json_text("capacity_seen", columns.CAPACITY_SEEN, nullable=True),
    *amount_columns(),
    fullness(),
    sa.UniqueConstraint("host", "hypervisor_hostname"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "fullness", "id"),
    sa.Index(CANDIDATE_INDEX, *CANDIDATE_COLUMNS),
    **MYSQL,
)

services = sa.Table(
    "services",
    metadata,
    row_id(),
    text("uuid", 64),
    text("host"),
    text("binary"),
    text("topic"),
    integer("report_count"),
    time("last_seen_up", nullable=True),
    flag("disabled"),
    long_text("disabled_reason", nullable=True),
    time("disabled_at", nullable=True),
    text("disabled_by", nullable=True),
    flag("maintenance"),
    time("maintenance_at", nullable=True),
    text("maintenance_by", nullable=True),
    sa.Column("spare", sa.Boolean(), nullable=False, server_default=sa.false()),
    flag("forced_down"),
    long_text("forced_down_reason", nullable=True),
    time("forced_down_at", nullable=True),
    text("forced_down_by", nullable=True),
    text("version"),
    text("agent_id", 64),
    integer("epoch"),
    text("boot_id"),
    integer("pid_ns"),
    integer("pid"),
    integer("process_started_at"),
    integer("report_interval", high=10**9),
    signed("clock_skew_ms", nullable=True),
    integer("ended_epoch", nullable=True),
    integer("calls"),
    json_text("last_audit", columns.LAST_AUDIT),
    time("created_at"),
    time("updated_at", nullable=True),
    sa.UniqueConstraint("host", "binary"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "binary"),
    **MYSQL,
)

guests = sa.Table(
    "guests",
    metadata,
    row_id(),
    node_id(),
    text("uuid", 64),
    long_text("name"),
    choice("kind", WorkloadKind),
    choice("power_state", PowerState),
    text("claim_uuid", 64, nullable=True),
    integer("vcpu_milli"),
    integer("memory_mb"),
    integer("disk_mb"),
    json_text("pins", columns.PINS, nullable=True),
    text("project_id"),
    json_text("details", columns.OBJECT, nullable=True),
    time("first_seen"),
    time("missing_since", nullable=True),
    sa.UniqueConstraint("compute_node_id", "uuid"),
    sa.Index(None, "claim_uuid", "uuid"),
    sa.Index(None, "uuid"),
    **MYSQL,
)

pci_devices = sa.Table(
    "pci_devices",
    metadata,
    row_id(),
    node_id(),
    text("address", PCI_ID_LENGTH),
    text("vendor_id", PCI_ID_LENGTH),
    text("product_id", PCI_ID_LENGTH),
    text("class_id", PCI_ID_LENGTH),
    choice("dev_type", PciDeviceType),
    text("driver"),
    integer("numa_node", nullable=True, low=-1, high=MAX_CPU_ID),
    text("parent_addr", PCI_ID_LENGTH, nullable=True),
    integer("vf_total"),
    integer("vf_count"),
    integer("iommu_group", nullable=True),
    choice("status", PciStatus, PciStatus.UNAVAILABLE),
    text("claim_uuid", 64, nullable=True),
    json_text("tags", columns.TAGS, nullable=True),
    sa.UniqueConstraint("compute_node_id", "address"),
    **MYSQL,
)

claims = sa.Table(
    "claims",
    metadata,
    row_id(),
    text("uuid", 64),
    node_id(),
    text("workload_uuid", 64),
    choice("workload_kind", WorkloadKind),
    text("workload_name"),
    text("project_id"),
    text("user_id"),
    choice("kind", ClaimKind),
    text("migration_uuid", 64, nullable=True),
    choice("state", ClaimState, ClaimState.HELD),
    text("reason"),
    integer("vcpu_milli"),
    integer("pcpus"),
    integer("memory_mb"),
    integer("disk_mb"),
    json_text("resources", columns.AMOUNTS),
    json_text("numa", columns.NUMA, nullable=True),
    json_text("devices", columns.ADDRESSES, is_list=True, nullable=True),
    text("request_hash", 64),
    json_text("request", columns.REQUIREMENT, nullable=True),
    time("expires_at", nullable=True),
    time("created_at"),
    time("updated_at"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "compute_node_id", "id"),
    sa.Index(None, "compute_node_id", "state", "reason", "updated_at"),
    sa.Index(None, "workload_uuid", "state"),
    sa.Index(None, "state", "workload_uuid"),
    sa.Index(None, "project_id", "workload_uuid"),
    sa.Index(None, "state", "id"),
    **MYSQL,
)

CLAIM_COLUMNS = tuple(column for column in claims.c if column.name != "request")
"""Those of claims as they are listed; what they asked for is read by itself."""

migrations = sa.Table(
    "migrations",
    metadata,
    row_id(),
    text("uuid", 64),
    text("workload_uuid", 64),
    choice("migration_type", MigrationType),
    choice("status", MigrationStatus, MigrationStatus.ERROR),
    text("source_host"),
    text("source_node"),
    text("dest_host"),
    text("dest_node"),
    text("source_claim", 64),
    text("dest_claim", 64),
    time("created_at"),
    time("updated_at"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "workload_uuid"),
    sa.Index(None, "status"),
    sa.Index(None, "source_claim"),
    sa.Index(None, "dest_claim"),
    sa.Index(None, "source_host", "status", "id"),
    sa.Index(None, "dest_host", "status", "id"),
    **MYSQL,
)

# No foreign key: a node's history outlives its row.
history = sa.Table(
    "history",
    metadata,
    row_id(),
    time("at"),
    integer("compute_node_id"),
    text("host"),
    text("nodename"),
    choice("what", ChangeKind, ChangeKind.UPDATE),
    json_text("diff", columns.HISTORY),
    text("kind", 32),
    sa.Index(None, "host", "nodename", "at"),
    sa.Index(None, "host", "at"),
    sa.Index(None, "kind", "at"),
    sa.Index(None, "at"),
    **MYSQL,
)

# The unique key stays below InnoDB's 3072 bytes, at four bytes a character.
warnings = sa.Table(
    "warnings",
    metadata,
    row_id(),
    text("host"),
    text("kind", 32),
    text("nodename"),
    text("item", WARNING_ITEM_LENGTH),
    long_text("message"),
    time("first_seen"),
    time("last_seen"),
    integer("count"),
    time("resolved_at", nullable=True),
    integer("earlier"),
    time("silenced_until", nullable=True),
    long_text("silenced_reason", nullable=True),
    text("silenced_by", nullable=True),
    sa.UniqueConstraint("host", "kind", "nodename", "item"),
    sa.Index(None, "resolved_at", "kind"),
    **MYSQL,
)

# No foreign key: the nodes are deleted. A node that comes back has the same uuid and
# may be deleted again, so the uuid is not unique.
provider_removals = sa.Table(
    "provider_removals",
    metadata,
    row_id(),
    text("provider_uuid", 64),
    text("name"),
    text("host"),
    json_text("workloads", columns.UUIDS, is_list=True),
    time("created_at"),
    integer("attempts"),
    long_text("error", nullable=True),
    time("lease_until", nullable=True),
    sa.Index(None, "provider_uuid"),
    sa.Index(None, "host"),
    **MYSQL,
)

# Of a secret only its SHA-256.
join_tokens = sa.Table(
    "join_tokens",
    metadata,
    row_id(),
    text("token_hash", 64),
    text("host", nullable=True),
    integer("uses"),
    time("created_at"),
    time("expires_at"),
    text("created_by"),
    sa.UniqueConstraint("token_hash"),
    sa.Index(None, "expires_at"),
    **MYSQL,
)

# The secret in use, the one that replaces it at its first use, and the one before.
agent_credentials = sa.Table(
    "agent_credentials",
    metadata,
    row_id(),
    text("host"),
    text("agent_id", 64),
    text("secret_hash", 64, nullable=True),
    text("next_hash", 64, nullable=True),
    text("previous_hash", 64, nullable=True),
    time("issued_at"),
    time("used_at", nullable=True),
    text("address"),
    time("revoked_at", nullable=True),
    sa.UniqueConstraint("host"),
    sa.Index(None, "secret_hash"),
    sa.Index(None, "next_hash"),
    sa.Index(None, "previous_hash"),
    **MYSQL,
)

# Calls of agents, which take each once; `services.calls` counts those of a host.
host_calls = sa.Table(
    "host_calls",
    metadata,
    row_id(),
    text("host"),
    text("method"),
    json_text("arguments", columns.OBJECT),
    text("sender"),
    time("created_at"),
    time("expires_at"),
    time("taken_at", nullable=True),
    time("answered_at", nullable=True),
    json_text("answer", columns.OBJECT, nullable=True),
    sa.Index(None, "host"),
    sa.Index(None, "expires_at"),
    **MYSQL,
)

# Part -1 is the fleet, each other one 64 nodes; no foreign key, as they outlive nodes.
trends = sa.Table(
    "trends",
    metadata,
    row_id(),
    integer("seconds"),
    time("at"),
    signed("part"),
    sa.Column("samples", sa.LargeBinary(), nullable=False),
    sa.UniqueConstraint("seconds", "part", "at"),
    sa.Index(None, "seconds", "at"),
    **MYSQL,
)

# What shows that the fleet survives the loss of each host, or not; no foreign key, as hosts
# are renamed and deleted meanwhile.
host_tolerances = sa.Table(
    "host_tolerances",
    metadata,
    row_id(),
    text("host"),
    choice("verdict", Verdict, Verdict.UNKNOWN),
    long_text("lost"),
    json_text("plan", columns.LOSS_PLAN),
    time("computed_at"),
    time("checked_at"),
    time("expires_at"),
    sa.UniqueConstraint("host"),
    **MYSQL,
)


HAS_SERVICE = sa.and_(services.c.host == compute_nodes.c.host, services.c.binary == COMPUTE_BINARY)
"""The condition that a service is that of a node's agent."""

WITH_SERVICE = compute_nodes.outerjoin(services, HAS_SERVICE)

ACTIVE = [state.value for state in ACTIVE_STATES]
IS_ACTIVE = claims.c.state.in_(ACTIVE)
"""The condition that a claim is active."""

_STATES = sorted(state.value for state in ClaimState)
HAS_UNKNOWN_STATE = sa.or_(
    claims.c.state < _STATES[0],
    *(sa.and_(claims.c.state > low, claims.c.state < high) for low, high in pairwise(_STATES)),
    claims.c.state > _STATES[-1],
)
"""The condition that a claim's state is damaged, as ranges, which an index finds."""

IS_OPEN = migrations.c.status.in_([status.value for status in OPEN])
"""The condition that a migration is open."""


def raised_generation() -> dict[str, sa.ColumnElement[int]]:
    """Return the columns of a write to ``compute_nodes`` that leaves a row's limits as they are.

    Limits that are current stay so, and stale ones stay stale.
    """
    names = ("generation", "limits_generation")
    return {name: next_number(compute_nodes.c[name]) for name in names}


def next_number(column: "sa.ColumnElement[int]") -> "sa.ColumnElement[int]":
    """Return a number that is larger by one, or 1 after one that the column may not have."""
    return sa.case((column.between(0, LARGEST), column + 1), else_=1)
