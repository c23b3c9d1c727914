"""Add until when a warning is silenced, why, and the user who did it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Add the columns; they are empty in existing rows."""
    op.add_column("warnings", sa.Column("silenced_until", _TIME, nullable=True))
    op.add_column("warnings", sa.Column("silenced_reason", sa.Text(), nullable=True))
    op.add_column("warnings", sa.Column("silenced_by", sa.String(255), nullable=True))


def downgrade() -> None:
    """Remove the columns."""
    op.drop_column("warnings", "silenced_by")
    op.drop_column("warnings", "silenced_reason")
    op.drop_column("warnings", "silenced_until")
