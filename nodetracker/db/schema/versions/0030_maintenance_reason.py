"""Add why hosts are in maintenance; of those that are, it is not known."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("services", sa.Column("maintenance_reason", sa.Text(), nullable=True))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("services", "maintenance_reason")
