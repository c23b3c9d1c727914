"""Add which claims agents made when guests were about to start; none of those there are."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column(
        "claims", sa.Column("by_door", sa.Boolean(), nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_column("claims", "by_door")
