"""Add samples of the amounts of nodes by the hour and by the day."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "trends",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("part", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_trends"),
        sa.UniqueConstraint("seconds", "part", "at", name="uq_trends_seconds_part_at"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    op.create_index("ix_trends_seconds_at", "trends", ["seconds", "at"])


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("trends")
