"""Create all tables."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0025"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")

_FREE = {
    "memory_mb_free": "(memory_mb_limit - memory_mb_used) * 1e0",
    "vcpu_milli_free": "vcpu_milli_limit - round(cpu_used * 1000e0)",
    "disk_mb_free": "disk_mb_limit - round(disk_used * 1024e0)",
    "ordinary_mb_free": "(memory_mb_limit - memory_mb_used - huge_mb_unused) * 1e0",
}
_CLAIMABLE = {
    "vcpu_milli_claimable": (_FREE["vcpu_milli_free"], "vcpus * 1000e0"),
    "pcpus_claimable": ("(pcpus - pcpus_used) * 1e0", "pcpus * 1e0"),
    "memory_mb_claimable": (_FREE["memory_mb_free"], "memory_mb * 1e0"),
    "disk_mb_claimable": (_FREE["disk_mb_free"], "local_gb * 1024e0"),
}
_SCREENING = (
    "place", "id", "admission_flags", "memory_mb_free", "ordinary_mb_free", "vcpu_milli_free",
    "disk_mb_free", "vcpu_milli_claimable", "pcpus_claimable", "memory_mb_claimable",
    "overhead_mb", "disk_mb_claimable", "generation", "limits_generation", "host",
    "hypervisor_hostname",
)  # fmt: skip


def upgrade() -> None:
    """Create them."""
    _create(
        "compute_nodes",
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
        _double("cpu_allocation_ratio"),
        _double("ram_allocation_ratio"),
        _double("disk_allocation_ratio"),
        _json("ratio_origins", nullable=True),
        _double("cpu_used"),
        _double("disk_used"),
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
        _flag("tracks_resources", sa.true()),
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
        _integer("vcpu_milli_limit", default="0"),
        _integer("memory_mb_limit", default="0"),
        _integer("huge_mb_unused", nullable=True),
        _integer("disk_mb_limit", default="0"),
        _integer("overhead_mb", default="0"),
        _integer("admission_flags", default="0"),
        _integer("limits_generation", default="0"),
        _integer("place", default="0"),
        _json("capacity_seen", nullable=True),
        *_amounts(),
        uniques=[["host", "hypervisor_hostname"], ["uuid"]],
    )
    op.create_index("ix_compute_nodes_screening", "compute_nodes", list(_SCREENING))
    _create(
        "services",
        _text("uuid", 64),
        _text("host"),
        _text("binary"),
        _text("topic"),
        _integer("report_count"),
        _time("last_seen_up", nullable=True),
        _flag("disabled"),
        _long_text("disabled_reason", nullable=True),
        _time("disabled_at", nullable=True),
        _text("disabled_by", nullable=True),
        _flag("maintenance"),
        _flag("forced_down"),
        _long_text("forced_down_reason", nullable=True),
        _time("forced_down_at", nullable=True),
        _text("forced_down_by", nullable=True),
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
        _integer("calls", default="0"),
        _json("last_audit"),
        _time("created_at"),
        _time("updated_at", nullable=True),
        uniques=[["host", "binary"], ["uuid"]],
        indexes=[["binary"]],
    )
    _create(
        "guests",
        _node_id(),
        _text("uuid", 64),
        _long_text("name"),
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
        _node_key("guests"),
        uniques=[["compute_node_id", "uuid"]],
        indexes=[["claim_uuid", "uuid"], ["uuid"]],
    )
    _create(
        "pci_devices",
        _node_id(),
        _text("address", 16),
        _text("vendor_id", 16),
        _text("product_id", 16),
        _text("class_id", 16),
        _text("dev_type", 32),
        _text("driver"),
        _integer("numa_node", nullable=True),
        _text("parent_addr", 16, nullable=True),
        _integer("vf_total"),
        _integer("vf_count"),
        _integer("iommu_group", nullable=True),
        _text("status", 32),
        _text("claim_uuid", 64, nullable=True),
        _json("tags", nullable=True),
        _node_key("pci_devices"),
        uniques=[["compute_node_id", "address"]],
    )
    _create(
        "claims",
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
        _node_key("claims"),
        uniques=[["uuid"]],
        indexes=[
            ["compute_node_id", "id"],
            ["compute_node_id", "state", "reason", "updated_at"],
            ["workload_uuid", "state"],
            ["state", "workload_uuid"],
            ["project_id", "workload_uuid"],
            ["state", "id"],
        ],
    )
    _create(
        "migrations",
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
        uniques=[["uuid"]],
        indexes=[
            ["workload_uuid"],
            ["status"],
            ["source_claim"],
            ["dest_claim"],
            ["source_host", "status", "id"],
            ["dest_host", "status", "id"],
        ],
    )
    _create(
        "history",
        _time("at"),
        _integer("compute_node_id"),
        _text("host"),
        _text("nodename"),
        _text("what", 32),
        _json("diff"),
        _text("kind", 32, default="node"),
        indexes=[["host", "nodename", "at"], ["host", "at"], ["kind", "at"], ["at"]],
    )
    _create(
        "warnings",
        _text("host"),
        _text("kind", 32),
        _text("nodename"),
        _text("item", 191),
        _long_text("message"),
        _time("first_seen"),
        _time("last_seen"),
        _integer("count"),
        _time("resolved_at", nullable=True),
        _integer("earlier", default="0"),
        _time("silenced_until", nullable=True),
        _long_text("silenced_reason", nullable=True),
        _text("silenced_by", nullable=True),
        uniques=[["host", "kind", "nodename", "item"]],
        indexes=[["resolved_at", "kind"]],
    )
    _create(
        "provider_removals",
        _text("provider_uuid", 64),
        _text("name"),
        _text("host"),
        _json("workloads"),
        _time("created_at"),
        _integer("attempts"),
        _long_text("error", nullable=True),
        _time("lease_until", nullable=True),
        indexes=[["provider_uuid"], ["host"]],
    )
    _create(
        "join_tokens",
        _text("token_hash", 64),
        _text("host", nullable=True),
        _integer("uses"),
        _time("created_at"),
        _time("expires_at"),
        _text("created_by"),
        uniques=[["token_hash"]],
        indexes=[["expires_at"]],
    )
    _create(
        "agent_credentials",
        _text("host"),
        _text("agent_id", 64),
        _text("secret_hash", 64, nullable=True),
        _text("next_hash", 64, nullable=True),
        _text("previous_hash", 64, nullable=True),
        _time("issued_at"),
        _time("used_at", nullable=True),
        _text("address"),
        _time("revoked_at", nullable=True),
        uniques=[["host"]],
        indexes=[["secret_hash"], ["next_hash"], ["previous_hash"]],
    )
    _create(
        "host_calls",
        _text("host"),
        _text("method"),
        _json("arguments"),
        _text("sender"),
        _time("created_at"),
        _time("expires_at"),
        _time("taken_at", nullable=True),
        _time("answered_at", nullable=True),
        _json("answer", nullable=True),
        indexes=[["host"], ["expires_at"]],
    )
    _create(
        "trends",
        _integer("seconds"),
        _time("at"),
        _integer("part"),
        sa.Column("samples", sa.LargeBinary(), nullable=False),
        uniques=[["seconds", "part", "at"]],
        indexes=[["seconds", "at"]],
    )


def contract() -> None:
    """Remove what databases have of before 1.0, when several revisions led to this one."""
    op.drop_index("ix_compute_nodes_candidates", "compute_nodes")
    op.drop_column("compute_nodes", "instance_memory_mb_claimable")


def downgrade() -> None:
    """Drop all tables, those that refer to others first."""
    for table in (
        "trends", "host_calls", "agent_credentials", "join_tokens", "provider_removals",
        "warnings", "history", "migrations", "claims", "pci_devices", "guests", "services",
        "compute_nodes",
    ):  # fmt: skip
        op.drop_table(table)


def _create(
    table: str,
    *items: sa.schema.SchemaItem,
    uniques: Sequence[list[str]] = (),
    indexes: Sequence[list[str]] = (),
) -> None:
    op.create_table(
        table,
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        *items,
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        *(sa.UniqueConstraint(*names, name=_name("uq", table, names)) for names in uniques),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    for names in indexes:
        op.create_index(_name("ix", table, names), table, names)


def _name(kind: str, table: str, columns: Sequence[str]) -> str:
    return "_".join((kind, table, *columns))


def _node_id() -> "sa.Column[int]":
    return sa.Column("compute_node_id", _ID, nullable=False)


def _node_key(table: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_compute_node_id_compute_nodes"
    return sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name=name)


def _text(
    name: str, length: int = 255, nullable: bool = False, default: str | None = None
) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length), nullable=nullable, server_default=default)


def _long_text(name: str, nullable: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.Text(), nullable=nullable)


def _integer(name: str, nullable: bool = False, default: str | None = None) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=nullable, server_default=default)


def _double(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double(), nullable=False)


def _flag(name: str, default: Any = None) -> "sa.Column[bool]":
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=default)


def _time(name: str, nullable: bool = False) -> "sa.Column[Any]":
    return sa.Column(name, _TIME, nullable=nullable)


def _json(name: str, nullable: bool = False) -> "sa.Column[str]":
    return sa.Column(name, _JSON, nullable=nullable)


def _amounts() -> "list[sa.Column[float]]":
    """Return what the database computes; SQLite does so when it is read."""
    amounts = dict(_FREE)
    for name, (free, total) in _CLAIMABLE.items():
        smaller = f"WHEN {free} < {total} THEN {free} ELSE {total}"
        amounts[name] = (
            f"CASE WHEN (admission_flags & 1) <> 0 THEN 9007199254740992e0 {smaller} END"
        )
    is_stored = None if op.get_bind().dialect.name == "sqlite" else True
    return [
        sa.Column(name, sa.Double(), sa.Computed(expression, persisted=is_stored))
        for name, expression in amounts.items()
    ]
