"""Add container engines and mediated devices of nodes, and the driver's details of guests."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ADDED = (("compute_nodes", "engine"), ("compute_nodes", "mdev_types"), ("guests", "details"))
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Add the columns; they are empty in existing rows."""
    for table, column in _ADDED:
        op.add_column(table, sa.Column(column, _JSON, nullable=True))
        rows = sa.table(table, sa.column(column))
        op.execute(rows.update().where(rows.c[column].is_(None)).values({column: "{}"}))


def downgrade() -> None:
    """Remove the columns."""
    # In place: a table that is created again would lose the rows that refer to it.
    for table, column in reversed(_ADDED):
        op.drop_column(table, column)
