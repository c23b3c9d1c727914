"""Add the indexes by which pages of lists are read."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_INDEXES = (
    ("claims", ["workload_uuid", "state"]),
    ("claims", ["project_id", "workload_uuid"]),
    ("claims", ["state", "id"]),
    ("guests", ["claim_uuid", "uuid"]),
    ("migrations", ["status"]),
    ("migrations", ["source_claim"]),
    ("migrations", ["dest_claim"]),
    ("migrations", ["source_host"]),
    ("migrations", ["dest_host"]),
    ("history", ["host", "at"]),
    ("warnings", ["resolved_at", "kind"]),
)


def upgrade() -> None:
    """Create them; one replaces that of a claim's workload alone."""
    for table, columns in _INDEXES:
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)
    op.drop_index("ix_claims_workload_uuid", "claims")


def downgrade() -> None:
    """Restore the index of a claim's workload, and drop them."""
    op.create_index("ix_claims_workload_uuid", "claims", ["workload_uuid"])
    for table, columns in _INDEXES:
        op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
