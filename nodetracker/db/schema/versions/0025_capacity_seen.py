"""Add to nodes the largest capacity that was seen of them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Add the column; of existing rows, the present capacity is the largest one."""
    op.add_column("compute_nodes", sa.Column("capacity_seen", _JSON, nullable=True))


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("compute_nodes", "capacity_seen")
