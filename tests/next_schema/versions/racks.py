"""Add the racks of nodes, and change most tables and the index of candidates."""

import sqlalchemy as sa
from alembic import op

from nodetracker.model.service import SCHEMA_REVISION
from tests.next_schema import NEXT

revision = NEXT
down_revision = SCHEMA_REVISION
branch_labels = None
depends_on = None

_INDEX = "ix_compute_nodes_screening"
_COLUMNS = [
    "place", "id", "admission_flags", "memory_mb_free", "ordinary_mb_free", "vcpu_milli_free",
    "disk_mb_free", "vcpu_milli_claimable", "pcpus_claimable", "memory_mb_claimable",
    "overhead_mb", "disk_mb_claimable", "generation", "limits_generation", "host",
    "hypervisor_hostname",
]  # fmt: skip


def upgrade() -> None:
    """Add the columns, fill one from the rows, and replace two indexes."""
    op.add_column("compute_nodes", sa.Column("rack", sa.String(64), nullable=True))
    nodes = sa.table("compute_nodes", sa.column("rack"), sa.column("host"))
    op.execute(nodes.update().where(nodes.c.rack.is_(None)).values(rack=nodes.c.host))
    op.create_index(_INDEX, "compute_nodes", ["rack", *_COLUMNS[1:]])
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
    """Restore both indexes and remove the columns."""
    op.create_index("ix_claims_state_id", "claims", ["state", "id"])
    op.drop_index("ix_claims_state_rack_id", "claims")
    op.drop_column("claims", "rack")
    op.drop_column("services", "racks")
    op.create_index(_INDEX, "compute_nodes", _COLUMNS)
    op.drop_column("compute_nodes", "rack")
