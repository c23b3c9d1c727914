"""Add since when a service is disabled, and the user who disabled it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Add the columns; they are empty in existing rows."""
    op.add_column("services", sa.Column("disabled_at", _TIME, nullable=True))
    op.add_column("services", sa.Column("disabled_by", sa.String(255), nullable=True))


def downgrade() -> None:
    """Remove the columns."""
    op.drop_column("services", "disabled_by")
    op.drop_column("services", "disabled_at")
