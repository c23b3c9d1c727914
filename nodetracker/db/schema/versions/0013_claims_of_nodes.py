"""Add an index by which the claims of a node, released ones included, are listed in order."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_INDEX = "ix_claims_compute_node_id_id"


def upgrade() -> None:
    """Create it; earlier versions need not know it."""
    op.create_index(_INDEX, "claims", ["compute_node_id", "id"])


def downgrade() -> None:
    """Remove it."""
    op.drop_index(_INDEX, "claims")
