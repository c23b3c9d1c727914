"""Create the first schema: nodes, services, guests, PCI devices, history, warnings."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "compute_nodes",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("hypervisor_hostname", sa.String(255), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=True),
        sa.Column("vcpus", sa.BigInteger(), nullable=False),
        sa.Column("vcpus_used", sa.BigInteger(), nullable=False),
        sa.Column("memory_mb", sa.BigInteger(), nullable=False),
        sa.Column("memory_mb_used", sa.BigInteger(), nullable=False),
        sa.Column("local_gb", sa.BigInteger(), nullable=False),
        sa.Column("local_gb_used", sa.BigInteger(), nullable=False),
        sa.Column("free_ram_mb", sa.BigInteger(), nullable=False),
        sa.Column("free_disk_gb", sa.BigInteger(), nullable=False),
        sa.Column("current_workload", sa.BigInteger(), nullable=False),
        sa.Column("running_vms", sa.BigInteger(), nullable=False),
        sa.Column("hypervisor_type", sa.String(255), nullable=False),
        sa.Column("hypervisor_version", sa.BigInteger(), nullable=False),
        sa.Column("hypervisor_uuid", sa.String(255), nullable=True),
        sa.Column("host_ip", sa.String(255), nullable=False),
        sa.Column("cpu_info", _JSON, nullable=False),
        sa.Column("supported_instances", _JSON, nullable=False),
        sa.Column("pci_stats", _JSON, nullable=False),
        sa.Column("stats", _JSON, nullable=False),
        sa.Column("numa_topology", _JSON, nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("ram_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("disk_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("cpu_used", sa.Double(), nullable=False),
        sa.Column("disk_used", sa.Double(), nullable=False),
        sa.Column("total_containers", sa.BigInteger(), nullable=False),
        sa.Column("running_containers", sa.BigInteger(), nullable=False),
        sa.Column("paused_containers", sa.BigInteger(), nullable=False),
        sa.Column("stopped_containers", sa.BigInteger(), nullable=False),
        sa.Column("architecture", sa.String(255), nullable=False),
        sa.Column("os_type", sa.String(255), nullable=False),
        sa.Column("os", sa.String(255), nullable=False),
        sa.Column("kernel_version", sa.String(255), nullable=False),
        sa.Column("boot_id", sa.String(255), nullable=True),
        sa.Column("booted_at", _TIME, nullable=True),
        sa.Column("labels", _JSON, nullable=False),
        sa.Column("runtimes", _JSON, nullable=False),
        sa.Column("disk_quota_supported", sa.Boolean(), nullable=False),
        sa.Column("enable_cpu_pinning", sa.Boolean(), nullable=False),
        sa.Column("pcpus", sa.BigInteger(), nullable=False),
        sa.Column("pcpus_used", sa.BigInteger(), nullable=False),
        sa.Column("reserved", _JSON, nullable=False),
        sa.Column("overhead", _JSON, nullable=False),
        sa.Column("inventory", _JSON, nullable=False),
        sa.Column("traits", _JSON, nullable=False),
        sa.Column("system", _JSON, nullable=False),
        sa.Column("disks", _JSON, nullable=False),
        sa.Column("gpus", _JSON, nullable=False),
        sa.Column("facts", _JSON, nullable=False),
        sa.Column("mem_available", sa.BigInteger(), nullable=True),
        sa.Column("disk_available_least", sa.BigInteger(), nullable=True),
        sa.Column("metrics", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_compute_nodes"),
        sa.UniqueConstraint(
            "host", "hypervisor_hostname", name="uq_compute_nodes_host_hypervisor_hostname"
        ),
        sa.UniqueConstraint("uuid", name="uq_compute_nodes_uuid"),
        **_MYSQL,
    )
    op.create_table(
        "history",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("compute_node_id", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("nodename", sa.String(255), nullable=False),
        sa.Column("what", sa.String(32), nullable=False),
        sa.Column("diff", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_history"),
        **_MYSQL,
    )
    op.create_index("ix_history_at", "history", ["at"])
    op.create_index("ix_history_host_nodename_at", "history", ["host", "nodename", "at"])
    op.create_table(
        "services",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("binary", sa.String(255), nullable=False),
        sa.Column("topic", sa.String(255), nullable=False),
        sa.Column("report_count", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_up", _TIME, nullable=True),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("maintenance", sa.Boolean(), nullable=False),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("version", sa.String(255), nullable=False),
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", sa.String(255), nullable=False),
        sa.Column("pid_ns", sa.BigInteger(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("process_started_at", sa.BigInteger(), nullable=False),
        sa.Column("report_interval", sa.BigInteger(), nullable=False),
        sa.Column("clock_skew_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_audit", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_services"),
        sa.UniqueConstraint("host", "binary", name="uq_services_host_binary"),
        sa.UniqueConstraint("uuid", name="uq_services_uuid"),
        **_MYSQL,
    )
    op.create_table(
        "warnings",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("nodename", sa.String(255), nullable=False),
        sa.Column("item", sa.String(191), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("first_seen", _TIME, nullable=False),
        sa.Column("last_seen", _TIME, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_warnings"),
        sa.UniqueConstraint(
            "host", "kind", "nodename", "item", name="uq_warnings_host_kind_nodename_item"
        ),
        **_MYSQL,
    )
    op.create_table(
        "guests",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("compute_node_id", _ID, nullable=False),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("power_state", sa.String(32), nullable=False),
        sa.Column("claim_uuid", sa.String(64), nullable=True),
        sa.Column("vcpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("memory_mb", sa.BigInteger(), nullable=False),
        sa.Column("disk_mb", sa.BigInteger(), nullable=False),
        sa.Column("pins", _JSON, nullable=True),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("first_seen", _TIME, nullable=False),
        sa.Column("missing_since", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_guests"),
        sa.ForeignKeyConstraint(
            ["compute_node_id"],
            ["compute_nodes.id"],
            name="fk_guests_compute_node_id_compute_nodes",
        ),
        sa.UniqueConstraint("compute_node_id", "uuid", name="uq_guests_compute_node_id_uuid"),
        **_MYSQL,
    )
    op.create_table(
        "pci_devices",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("compute_node_id", _ID, nullable=False),
        sa.Column("address", sa.String(16), nullable=False),
        sa.Column("vendor_id", sa.String(16), nullable=False),
        sa.Column("product_id", sa.String(16), nullable=False),
        sa.Column("class_id", sa.String(16), nullable=False),
        sa.Column("dev_type", sa.String(32), nullable=False),
        sa.Column("driver", sa.String(255), nullable=False),
        sa.Column("numa_node", sa.BigInteger(), nullable=True),
        sa.Column("parent_addr", sa.String(16), nullable=True),
        sa.Column("vf_total", sa.BigInteger(), nullable=False),
        sa.Column("vf_count", sa.BigInteger(), nullable=False),
        sa.Column("iommu_group", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("claim_uuid", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_pci_devices"),
        sa.ForeignKeyConstraint(
            ["compute_node_id"],
            ["compute_nodes.id"],
            name="fk_pci_devices_compute_node_id_compute_nodes",
        ),
        sa.UniqueConstraint(
            "compute_node_id", "address", name="uq_pci_devices_compute_node_id_address"
        ),
        **_MYSQL,
    )


def downgrade() -> None:
    """Drop all tables."""
    op.drop_table("pci_devices")
    op.drop_table("guests")
    op.drop_table("warnings")
    op.drop_table("services")
    op.drop_table("history")
    op.drop_table("compute_nodes")
