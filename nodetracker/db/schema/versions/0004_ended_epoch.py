"""Add the epoch of the last run of a service that reported its own end."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is empty in existing rows."""
    op.add_column("services", sa.Column("ended_epoch", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("services", "ended_epoch")
