"""Add whether the fleet survives the loss of each host, with the plan that shows it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "host_tolerances",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("verdict", sa.String(32), nullable=False),
        sa.Column("lost", sa.Text(), nullable=False),
        sa.Column("plan", _JSON, nullable=False),
        sa.Column("computed_at", _TIME, nullable=False),
        sa.Column("checked_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_host_tolerances"),
        sa.UniqueConstraint("host", name="uq_host_tolerances_host"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("host_tolerances")
