"""Add the calls that agents without a broker take with their heartbeats."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "host_calls",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("method", sa.String(255), nullable=False),
        sa.Column("arguments", _JSON, nullable=False),
        sa.Column("sender", sa.String(255), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("taken_at", _TIME, nullable=True),
        sa.Column("answered_at", _TIME, nullable=True),
        sa.Column("answer", _JSON, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_host_calls"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    for column in ("host", "expires_at"):
        op.create_index(f"ix_host_calls_{column}", "host_calls", [column])


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("host_calls")
