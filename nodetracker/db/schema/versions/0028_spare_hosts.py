"""Add which hosts are spare; none is, unless an administrator says so."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column(
        "services", sa.Column("spare", sa.Boolean(), nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_column("services", "spare")
