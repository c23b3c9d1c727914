"""Add what claims asked for beside their amounts; NULL in those that are older."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Add the column."""
    op.add_column("claims", sa.Column("request", _JSON, nullable=True))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("claims", "request")
