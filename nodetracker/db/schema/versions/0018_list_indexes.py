"""Add indexes by which statements read few rows, however many agents or released claims exist."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_INDEXES = (
    ("services", ["binary"]),
    ("claims", ["state", "workload_uuid"]),
    ("join_tokens", ["expires_at"]),
)


def upgrade() -> None:
    """Create them; earlier versions need not know them."""
    for table, columns in _INDEXES:
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


def downgrade() -> None:
    """Remove them."""
    for table, columns in _INDEXES:
        op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
