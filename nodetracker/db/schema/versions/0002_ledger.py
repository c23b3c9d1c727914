"""Add the ledger: claims and migrations."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
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
    """Create both tables; add the tags of devices, and how nodes evaluate claims."""
    op.add_column("pci_devices", sa.Column("tags", _JSON, nullable=True))
    op.add_column("compute_nodes", sa.Column("ratio_origins", _JSON, nullable=True))
    op.add_column(
        "compute_nodes",
        sa.Column("tracks_resources", sa.Boolean(), nullable=False, server_default=sa.true()),
    )
    op.create_table(
        "claims",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("compute_node_id", _ID, nullable=False),
        sa.Column("workload_uuid", sa.String(64), nullable=False),
        sa.Column("workload_kind", sa.String(32), nullable=False),
        sa.Column("workload_name", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("migration_uuid", sa.String(64), nullable=True),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(255), nullable=False),
        sa.Column("vcpu_milli", sa.BigInteger(), nullable=False),
        sa.Column("pcpus", sa.BigInteger(), nullable=False),
        sa.Column("memory_mb", sa.BigInteger(), nullable=False),
        sa.Column("disk_mb", sa.BigInteger(), nullable=False),
        sa.Column("resources", _JSON, nullable=False),
        sa.Column("numa", _JSON, nullable=True),
        sa.Column("devices", _JSON, nullable=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_claims"),
        sa.ForeignKeyConstraint(
            ["compute_node_id"],
            ["compute_nodes.id"],
            name="fk_claims_compute_node_id_compute_nodes",
        ),
        sa.UniqueConstraint("uuid", name="uq_claims_uuid"),
        **_MYSQL,
    )
    op.create_index("ix_claims_compute_node_id_state", "claims", ["compute_node_id", "state"])
    op.create_index("ix_claims_workload_uuid", "claims", ["workload_uuid"])
    op.create_table(
        "migrations",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("workload_uuid", sa.String(64), nullable=False),
        sa.Column("migration_type", sa.String(32), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("source_host", sa.String(255), nullable=False),
        sa.Column("source_node", sa.String(255), nullable=False),
        sa.Column("dest_host", sa.String(255), nullable=False),
        sa.Column("dest_node", sa.String(255), nullable=False),
        sa.Column("source_claim", sa.String(64), nullable=False),
        sa.Column("dest_claim", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_migrations"),
        sa.UniqueConstraint("uuid", name="uq_migrations_uuid"),
        **_MYSQL,
    )
    op.create_index("ix_migrations_workload_uuid", "migrations", ["workload_uuid"])


def downgrade() -> None:
    """Remove both tables and the columns."""
    op.drop_table("migrations")
    op.drop_table("claims")
    # In place: a table that is created again would lose the rows that refer to it.
    op.drop_column("pci_devices", "tags")
    op.drop_column("compute_nodes", "tracks_resources")
    op.drop_column("compute_nodes", "ratio_origins")
