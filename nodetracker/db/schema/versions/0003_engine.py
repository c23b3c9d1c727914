"""Container engines of nodes, and what drivers tell of a guest beside its amounts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Add both columns; rows that are there tell nothing."""
    for table, column in (("compute_nodes", "engine"), ("guests", "details")):
        op.add_column(table, sa.Column(column, _JSON, nullable=True))
        rows = sa.table(table, sa.column(column))
        op.execute(rows.update().values({column: "{}"}))


def downgrade() -> None:
    """Take them away again."""
    # In place, as a table made anew would lose the rows that refer to it.
    op.drop_column("guests", "details")
    op.drop_column("compute_nodes", "engine")
