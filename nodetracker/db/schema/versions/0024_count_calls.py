"""Add the number of calls that were made of a host's agent."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; rows of the release before count none."""
    op.add_column(
        "services", sa.Column("calls", sa.BigInteger(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("services", "calls")
