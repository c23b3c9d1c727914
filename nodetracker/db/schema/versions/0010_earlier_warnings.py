"""Add how often a warning was raised and resolved before."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; nothing is known of existing rows."""
    column = sa.Column("earlier", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("warnings", column)


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("warnings", "earlier")
