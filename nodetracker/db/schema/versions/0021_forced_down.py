"""Add why and since when a service is forced down, and the user who did it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Add the columns; they are empty in existing rows."""
    op.add_column("services", sa.Column("forced_down_reason", sa.Text(), nullable=True))
    op.add_column("services", sa.Column("forced_down_at", _TIME, nullable=True))
    op.add_column("services", sa.Column("forced_down_by", sa.String(255), nullable=True))


def downgrade() -> None:
    """Remove the columns."""
    op.drop_column("services", "forced_down_by")
    op.drop_column("services", "forced_down_at")
    op.drop_column("services", "forced_down_reason")
