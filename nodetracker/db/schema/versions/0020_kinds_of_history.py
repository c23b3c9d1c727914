"""Add what a line of the history is about, and an index by it."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column: earlier versions know only lines of nodes."""
    column = sa.Column("kind", sa.String(32), nullable=False, server_default="node")
    op.add_column("history", column)
    op.create_index("ix_history_kind_at", "history", ["kind", "at"])


def downgrade() -> None:
    """Remove the column."""
    op.drop_index("ix_history_kind_at", "history")
    op.drop_column("history", "kind")
