"""Tables as the code of this version uses them, and what their columns may contain.

The revisions in ``versions`` create them; a test compares the two. All
databases compare strings by their bytes, so names that differ in case differ.
"""

from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from nodetracker.db import columns
from nodetracker.db.columns import MAX_RATIO
from nodetracker.db.schema.fields import (
    amount,
    amount_columns,
    choice,
    double,
    flag,
    fullness,
    integer,
    json_text,
    long_text,
    node_id,
    node_json,
    row_id,
    signed,
    text,
    time,
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
from nodetracker.model.shapes import LARGEST
from nodetracker.model.text import PCI_ID_LENGTH
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
    long_text("maintenance_reason", nullable=True),
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
    sa.Column("by_door", sa.Boolean, nullable=False, server_default=sa.false()),
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

# The server that has replaced this one, as `db.connection.primaries` marks it on PostgreSQL.
primaries = sa.Table(
    "primaries",
    metadata,
    row_id(),
    text("system_identifier", 64),
    integer("timeline"),
    text("address"),
    sa.UniqueConstraint("system_identifier"),
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
