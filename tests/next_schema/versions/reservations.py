"""Add a table, and replace a column by another."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tests.next_schema import LAST, NEXT

revision = LAST
down_revision = NEXT
branch_labels = None
depends_on = None

_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Create the table and add the column."""
    op.create_table(
        "reservations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
    )
    op.create_index("ix_reservations_host", "reservations", ["host"])
    op.add_column("compute_nodes", sa.Column("mediated", _JSON, nullable=True))


def contract() -> None:
    """Remove the column that only the version before reads."""
    op.drop_column("compute_nodes", "mdev_types")


def downgrade() -> None:
    """Restore the column and remove what was added."""
    op.add_column("compute_nodes", sa.Column("mdev_types", _JSON, nullable=True))
    op.drop_column("compute_nodes", "mediated")
    op.drop_table("reservations")
