"""Tables as the code of this version uses them.

The revisions in ``versions`` create them; a test compares the two. All
databases compare strings by their bytes, so names that differ in case differ.
"""

from typing import Any

import sqlalchemy as sa

from nodetracker.db.column_types import JsonText, UtcDateTime
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

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def _id() -> "sa.Column[int]":
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", kind, primary_key=True, autoincrement=True)


def _node_id() -> "sa.Column[int]":
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("compute_node_id", kind, sa.ForeignKey("compute_nodes.id"), nullable=False)


def _text(name: str, length: int = TEXT_LENGTH, nullable: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length), nullable=nullable)


def _integer(name: str, nullable: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def _float(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double(), nullable=False)


def _flag(name: str) -> "sa.Column[bool]":
    return sa.Column(name, sa.Boolean(), nullable=False)


def _json(name: str, nullable: bool = False) -> "sa.Column[Any]":
    return sa.Column(name, JsonText(), nullable=nullable)


def _time(name: str, nullable: bool = False) -> "sa.Column[Any]":
    return sa.Column(name, UtcDateTime(), nullable=nullable)


compute_nodes = sa.Table(
    "compute_nodes",
    metadata,
    _id(),
    _text("uuid", 64),
    _text("host"),
    _text("hypervisor_hostname"),
    _integer("generation"),
    _integer("epoch"),
    _time("created_at"),
    _time("updated_at", nullable=True),
    _integer("vcpus"),
    _integer("vcpus_used"),
    _integer("memory_mb"),
    _integer("memory_mb_used"),
    _integer("local_gb"),
    _integer("local_gb_used"),
    _integer("free_ram_mb"),
    _integer("free_disk_gb"),
    _integer("current_workload"),
    _integer("running_vms"),
    _text("hypervisor_type"),
    _integer("hypervisor_version"),
    _text("hypervisor_uuid", nullable=True),
    _text("host_ip"),
    _json("cpu_info"),
    _json("supported_instances"),
    _json("pci_stats"),
    _json("stats"),
    _json("numa_topology"),
    _float("cpu_allocation_ratio"),
    _float("ram_allocation_ratio"),
    _float("disk_allocation_ratio"),
    _json("ratio_origins", nullable=True),
    _float("cpu_used"),
    _float("disk_used"),
    _integer("total_containers"),
    _integer("running_containers"),
    _integer("paused_containers"),
    _integer("stopped_containers"),
    _text("architecture"),
    _text("os_type"),
    _text("os"),
    _text("kernel_version"),
    _text("boot_id", nullable=True),
    _time("booted_at", nullable=True),
    _json("labels"),
    _json("runtimes"),
    _json("engine", nullable=True),
    _flag("disk_quota_supported"),
    _flag("enable_cpu_pinning"),
    _integer("pcpus"),
    _integer("pcpus_used"),
    _json("reserved"),
    _json("overhead"),
    _flag("tracks_resources"),
    _json("inventory"),
    _json("traits"),
    _json("system"),
    _json("disks"),
    _json("gpus"),
    _json("mdev_types", nullable=True),
    _json("facts"),
    _integer("mem_available", nullable=True),
    _integer("disk_available_least", nullable=True),
    _json("metrics"),
    sa.UniqueConstraint("host", "hypervisor_hostname"),
    sa.UniqueConstraint("uuid"),
    **_MYSQL,
)

services = sa.Table(
    "services",
    metadata,
    _id(),
    _text("uuid", 64),
    _text("host"),
    _text("binary"),
    _text("topic"),
    _integer("report_count"),
    _time("last_seen_up", nullable=True),
    _flag("disabled"),
    sa.Column("disabled_reason", sa.Text(), nullable=True),
    _flag("maintenance"),
    _flag("forced_down"),
    _text("version"),
    _text("agent_id", 64),
    _integer("epoch"),
    _text("boot_id"),
    _integer("pid_ns"),
    _integer("pid"),
    _integer("process_started_at"),
    _integer("report_interval"),
    _integer("clock_skew_ms", nullable=True),
    _integer("ended_epoch", nullable=True),
    _json("last_audit"),
    _time("created_at"),
    _time("updated_at", nullable=True),
    sa.UniqueConstraint("host", "binary"),
    sa.UniqueConstraint("uuid"),
    **_MYSQL,
)

guests = sa.Table(
    "guests",
    metadata,
    _id(),
    _node_id(),
    _text("uuid", 64),
    sa.Column("name", sa.Text(), nullable=False),
    _text("kind", 32),
    _text("power_state", 32),
    _text("claim_uuid", 64, nullable=True),
    _integer("vcpu_milli"),
    _integer("memory_mb"),
    _integer("disk_mb"),
    _json("pins", nullable=True),
    _text("project_id"),
    _json("details", nullable=True),
    _time("first_seen"),
    _time("missing_since", nullable=True),
    sa.UniqueConstraint("compute_node_id", "uuid"),
    sa.Index(None, "claim_uuid", "uuid"),
    **_MYSQL,
)

pci_devices = sa.Table(
    "pci_devices",
    metadata,
    _id(),
    _node_id(),
    _text("address", PCI_ID_LENGTH),
    _text("vendor_id", PCI_ID_LENGTH),
    _text("product_id", PCI_ID_LENGTH),
    _text("class_id", PCI_ID_LENGTH),
    _text("dev_type", 32),
    _text("driver"),
    _integer("numa_node", nullable=True),
    _text("parent_addr", PCI_ID_LENGTH, nullable=True),
    _integer("vf_total"),
    _integer("vf_count"),
    _integer("iommu_group", nullable=True),
    _text("status", 32),
    _text("claim_uuid", 64, nullable=True),
    _json("tags", nullable=True),
    sa.UniqueConstraint("compute_node_id", "address"),
    **_MYSQL,
)

claims = sa.Table(
    "claims",
    metadata,
    _id(),
    _text("uuid", 64),
    _node_id(),
    _text("workload_uuid", 64),
    _text("workload_kind", 32),
    _text("workload_name"),
    _text("project_id"),
    _text("user_id"),
    _text("kind", 32),
    _text("migration_uuid", 64, nullable=True),
    _text("state", 32),
    _text("reason"),
    _integer("vcpu_milli"),
    _integer("pcpus"),
    _integer("memory_mb"),
    _integer("disk_mb"),
    _json("resources"),
    _json("numa", nullable=True),
    _json("devices", nullable=True),
    _text("request_hash", 64),
    _time("expires_at", nullable=True),
    _time("created_at"),
    _time("updated_at"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "compute_node_id", "state"),
    sa.Index(None, "workload_uuid", "state"),
    sa.Index(None, "project_id", "workload_uuid"),
    sa.Index(None, "state", "id"),
    **_MYSQL,
)

migrations = sa.Table(
    "migrations",
    metadata,
    _id(),
    _text("uuid", 64),
    _text("workload_uuid", 64),
    _text("migration_type", 32),
    _text("status", 32),
    _text("source_host"),
    _text("source_node"),
    _text("dest_host"),
    _text("dest_node"),
    _text("source_claim", 64),
    _text("dest_claim", 64),
    _time("created_at"),
    _time("updated_at"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "workload_uuid"),
    sa.Index(None, "status"),
    sa.Index(None, "source_claim"),
    sa.Index(None, "dest_claim"),
    sa.Index(None, "source_host"),
    sa.Index(None, "dest_host"),
    **_MYSQL,
)

# No foreign key: a node's history outlives its row.
history = sa.Table(
    "history",
    metadata,
    _id(),
    _time("at"),
    _integer("compute_node_id"),
    _text("host"),
    _text("nodename"),
    _text("what", 32),
    _json("diff"),
    sa.Index(None, "host", "nodename", "at"),
    sa.Index(None, "host", "at"),
    sa.Index(None, "at"),
    **_MYSQL,
)

# The unique key stays below InnoDB's 3072 bytes, at four bytes a character.
warnings = sa.Table(
    "warnings",
    metadata,
    _id(),
    _text("host"),
    _text("kind", 32),
    _text("nodename"),
    _text("item", WARNING_ITEM_LENGTH),
    sa.Column("message", sa.Text(), nullable=False),
    _time("first_seen"),
    _time("last_seen"),
    _integer("count"),
    _time("resolved_at", nullable=True),
    sa.UniqueConstraint("host", "kind", "nodename", "item"),
    sa.Index(None, "resolved_at", "kind"),
    **_MYSQL,
)
