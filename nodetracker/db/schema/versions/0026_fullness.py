"""Add how full nodes are, with an index, and since when and by whom hosts are in maintenance."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_INDEX = "ix_compute_nodes_fullness_id"


def _fill(total: str, used: str, limit: str, ratio: str) -> str:
    reserved = f"CASE WHEN {ratio} >= 1e-3 THEN {total} - {limit} / {ratio} ELSE 0e0 END"
    whole = f"{limit} + {reserved}"
    return (
        f"CASE WHEN {whole} >= 1 THEN ({used} + {reserved}) / ({whole}) "
        f"WHEN {used} > 0 THEN 2e0 WHEN {reserved} >= 1 THEN 1e0 ELSE 0e0 END"
    )


_FILLS = (
    _fill("vcpus * 1000e0", "round(cpu_used * 1000e0)", "vcpu_milli_limit", "cpu_allocation_ratio"),
    "CASE WHEN pcpus >= 1 THEN pcpus_used * 1e0 / pcpus WHEN pcpus_used > 0 THEN 2e0 ELSE 0e0 END",
    "CASE WHEN memory_mb_limit >= 1 THEN memory_mb_used * 1e0 / memory_mb_limit "
    "WHEN memory_mb_used > 0 THEN 1e0 ELSE 0e0 END",
    _fill(
        "local_gb * 1024e0", "round(disk_used * 1024e0)", "disk_mb_limit", "disk_allocation_ratio"
    ),
)


def upgrade() -> None:
    """Add the columns and the index; SQLite computes the fullness when it is read."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    text = f"{'max' if is_sqlite else 'greatest'}({', '.join(_FILLS)})"
    fullness = sa.Computed(text, persisted=None if is_sqlite else True)
    op.add_column("compute_nodes", sa.Column("fullness", sa.Double(), fullness))
    op.create_index(_INDEX, "compute_nodes", ["fullness", "id"])
    op.add_column("services", sa.Column("maintenance_at", _TIME, nullable=True))
    op.add_column("services", sa.Column("maintenance_by", sa.String(255), nullable=True))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("services", "maintenance_by")
    op.drop_column("services", "maintenance_at")
    op.drop_index(_INDEX, "compute_nodes")
    op.drop_column("compute_nodes", "fullness")
