"""Add the racks of nodes, and an index by them."""

import sqlalchemy as sa
from alembic import op

from nodetracker.model.service import SCHEMA_REVISION
from tests.next_schema import NEXT

revision = NEXT
down_revision = SCHEMA_REVISION
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, fill one from the rows, and create the index that replaces another."""
    op.add_column("compute_nodes", sa.Column("rack", sa.String(64), nullable=True))
    nodes = sa.table("compute_nodes", sa.column("rack"), sa.column("host"))
    op.execute(nodes.update().where(nodes.c.rack.is_(None)).values(rack=nodes.c.host))
    op.add_column(
        "services", sa.Column("racks", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column(
        "claims", sa.Column("rack", sa.String(255), nullable=False, server_default="none")
    )
    op.create_index("ix_claims_state_rack_id", "claims", ["state", "rack", "id"])


def contract() -> None:
    """Remove the index that only the version before reads by."""
    op.drop_index("ix_claims_state_id", "claims")


def downgrade() -> None:
    """Restore the former index and remove what was added."""
    op.create_index("ix_claims_state_id", "claims", ["state", "id"])
    op.drop_index("ix_claims_state_rack_id", "claims")
    op.drop_column("claims", "rack")
    op.drop_column("services", "racks")
    op.drop_column("compute_nodes", "rack")
