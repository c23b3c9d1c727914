"""Tables as the code of this version uses them, and the kinds of their columns.

The revisions in ``versions`` create them; a test compares the two. All
databases compare strings by their bytes, so names that differ in case differ.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from nodetracker.db.connection.dialect import JsonText, UtcDateTime
from nodetracker.model.claim import ACTIVE_STATES, OPEN
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.text import PCI_ID_LENGTH, TEXT_LENGTH
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
    return sa.Column(name, sa.String(length), nullable=nullable)


def integer(name: str, nullable: bool = False) -> "sa.Column[int]":
    """Return a column of 64-bit integers."""
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def double(name: str) -> "sa.Column[float]":
    """Return a column of floating-point numbers."""
    return sa.Column(name, sa.Double(), nullable=False)


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
        yield sa.Column(name, sa.Double(), sa.Computed(expression, persisted=True))


def flag(name: str) -> "sa.Column[bool]":
    """Return a column of booleans."""
    return sa.Column(name, sa.Boolean(), nullable=False)


def json_text(name: str, nullable: bool = False) -> "sa.Column[Any]":
    """Return a column of JSON, stored as text."""
    return sa.Column(name, JsonText(), nullable=nullable)


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
    integer("vcpus"),
    integer("vcpus_used"),
    integer("memory_mb"),
    integer("memory_mb_used"),
    integer("local_gb"),
    integer("local_gb_used"),
    integer("free_ram_mb"),
    integer("free_disk_gb"),
    integer("current_workload"),
    integer("running_vms"),
    text("hypervisor_type"),
    integer("hypervisor_version"),
    text("hypervisor_uuid", nullable=True),
    text("host_ip"),
    json_text("cpu_info"),
    json_text("supported_instances"),
    json_text("pci_stats"),
    json_text("stats"),
    json_text("numa_topology"),
    double("cpu_allocation_ratio"),
    double("ram_allocation_ratio"),
    double("disk_allocation_ratio"),
    json_text("ratio_origins", nullable=True),
    double("cpu_used"),
    double("disk_used"),
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
    json_text("labels"),
    json_text("runtimes"),
    json_text("engine", nullable=True),
    flag("disk_quota_supported"),
    flag("enable_cpu_pinning"),
    integer("pcpus"),
    integer("pcpus_used"),
    json_text("reserved"),
    json_text("overhead"),
    flag("tracks_resources"),
    json_text("inventory"),
    json_text("traits"),
    json_text("system"),
    json_text("disks"),
    json_text("gpus"),
    json_text("mdev_types", nullable=True),
    json_text("facts"),
    integer("mem_available", nullable=True),
    integer("disk_available_least", nullable=True),
    json_text("metrics"),
    integer("vcpu_milli_limit"),
    integer("memory_mb_limit"),
    integer("huge_mb_unused", nullable=True),
    integer("disk_mb_limit"),
    integer("overhead_mb"),
    integer("admission_flags"),
    integer("limits_generation"),
    integer("place"),
    *amount_columns(),
    sa.UniqueConstraint("host", "hypervisor_hostname"),
    sa.UniqueConstraint("uuid"),
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
    sa.Column("disabled_reason", sa.Text(), nullable=True),
    time("disabled_at", nullable=True),
    text("disabled_by", nullable=True),
    flag("maintenance"),
    flag("forced_down"),
    sa.Column("forced_down_reason", sa.Text(), nullable=True),
    time("forced_down_at", nullable=True),
    text("forced_down_by", nullable=True),
    text("version"),
    text("agent_id", 64),
    integer("epoch"),
    text("boot_id"),
    integer("pid_ns"),
    integer("pid"),
    integer("process_started_at"),
    integer("report_interval"),
    integer("clock_skew_ms", nullable=True),
    integer("ended_epoch", nullable=True),
    json_text("last_audit"),
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
    sa.Column("name", sa.Text(), nullable=False),
    text("kind", 32),
    text("power_state", 32),
    text("claim_uuid", 64, nullable=True),
    integer("vcpu_milli"),
    integer("memory_mb"),
    integer("disk_mb"),
    json_text("pins", nullable=True),
    text("project_id"),
    json_text("details", nullable=True),
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
    text("dev_type", 32),
    text("driver"),
    integer("numa_node", nullable=True),
    text("parent_addr", PCI_ID_LENGTH, nullable=True),
    integer("vf_total"),
    integer("vf_count"),
    integer("iommu_group", nullable=True),
    text("status", 32),
    text("claim_uuid", 64, nullable=True),
    json_text("tags", nullable=True),
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
    text("workload_kind", 32),
    text("workload_name"),
    text("project_id"),
    text("user_id"),
    text("kind", 32),
    text("migration_uuid", 64, nullable=True),
    text("state", 32),
    text("reason"),
    integer("vcpu_milli"),
    integer("pcpus"),
    integer("memory_mb"),
    integer("disk_mb"),
    json_text("resources"),
    json_text("numa", nullable=True),
    json_text("devices", nullable=True),
    text("request_hash", 64),
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

migrations = sa.Table(
    "migrations",
    metadata,
    row_id(),
    text("uuid", 64),
    text("workload_uuid", 64),
    text("migration_type", 32),
    text("status", 32),
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
    text("what", 32),
    json_text("diff"),
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
    sa.Column("message", sa.Text(), nullable=False),
    time("first_seen"),
    time("last_seen"),
    integer("count"),
    time("resolved_at", nullable=True),
    integer("earlier"),
    time("silenced_until", nullable=True),
    sa.Column("silenced_reason", sa.Text(), nullable=True),
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
    json_text("workloads"),
    time("created_at"),
    integer("attempts"),
    sa.Column("error", sa.Text(), nullable=True),
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

# Calls of agents that have no broker; they take them with their heartbeats.
host_calls = sa.Table(
    "host_calls",
    metadata,
    row_id(),
    text("host"),
    text("method"),
    json_text("arguments"),
    text("sender"),
    time("created_at"),
    time("expires_at"),
    time("taken_at", nullable=True),
    time("answered_at", nullable=True),
    json_text("answer", nullable=True),
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
    integer("part"),
    sa.Column("samples", sa.LargeBinary(), nullable=False),
    sa.UniqueConstraint("seconds", "part", "at"),
    sa.Index(None, "seconds", "at"),
    **MYSQL,
)


HAS_SERVICE = sa.and_(services.c.host == compute_nodes.c.host, services.c.binary == COMPUTE_BINARY)
"""The condition that a service is that of a node's agent."""

WITH_SERVICE = compute_nodes.outerjoin(services, HAS_SERVICE)

ACTIVE = [state.value for state in ACTIVE_STATES]
IS_ACTIVE = claims.c.state.in_(ACTIVE)
"""The condition that a claim is active."""

IS_OPEN = migrations.c.status.in_([status.value for status in OPEN])
"""The condition that a migration is open."""


def raised_generation() -> dict[str, sa.ColumnElement[int]]:
    """Return the columns of a write to ``compute_nodes`` that leaves a row's limits as they are.

    Limits that are current stay so, and stale ones stay stale.
    """
    names = ("generation", "limits_generation")
    return {name: compute_nodes.c[name] + 1 for name in names}
