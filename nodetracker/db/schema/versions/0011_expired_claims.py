"""Replace the index of a node's claims by one that finds those that have just expired."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_COLUMNS = ["compute_node_id", "state", "reason", "updated_at"]


def upgrade() -> None:
    """Create it before the former one is dropped: MariaDB needs one for the foreign key."""
    op.create_index(f"ix_claims_{'_'.join(_COLUMNS)}", "claims", _COLUMNS)
    op.drop_index("ix_claims_compute_node_id_state", "claims")


def downgrade() -> None:
    """Restore the former one."""
    op.create_index("ix_claims_compute_node_id_state", "claims", _COLUMNS[:2])
    op.drop_index(f"ix_claims_{'_'.join(_COLUMNS)}", "claims")
