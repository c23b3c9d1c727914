"""Add a table, replace a column by another, and change the index of candidates."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tests.next_schema import LAST, NEXT

revision = LAST
down_revision = NEXT
branch_labels = None
depends_on = None

_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")

_INDEX = "ix_compute_nodes_screening"
_COLUMNS = [
    "place", "id", "admission_flags", "memory_mb_free", "ordinary_mb_free", "vcpu_milli_free",
    "disk_mb_free", "vcpu_milli_claimable", "pcpus_claimable", "memory_mb_claimable",
    "overhead_mb", "disk_mb_claimable", "generation", "limits_generation", "host",
    "hypervisor_hostname",
]  # fmt: skip


def upgrade() -> None:
    """Create the table, add the column and replace the index."""
    op.create_table(
        "reservations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
    )
    op.create_index("ix_reservations_host", "reservations", ["host"])
    op.add_column("compute_nodes", sa.Column("mediated", _JSON, nullable=True))
    op.create_index(_INDEX, "compute_nodes", ["rack", *_COLUMNS[1:]])


def contract() -> None:
    """Remove the column that only the version before reads."""
    op.drop_column("compute_nodes", "mdev_types")


def downgrade() -> None:
    """Restore the index and the column, and remove what was added."""
    op.create_index(_INDEX, "compute_nodes", _COLUMNS)
    op.add_column("compute_nodes", sa.Column("mdev_types", _JSON, nullable=True))
    op.drop_column("compute_nodes", "mediated")
    op.drop_table("reservations")
