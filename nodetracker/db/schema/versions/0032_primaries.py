"""Add the server that has replaced this one, of two PostgreSQL servers that accept writes."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "primaries",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("system_identifier", sa.String(64), nullable=False),
        sa.Column("timeline", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_primaries"),
        sa.UniqueConstraint("system_identifier", name="uq_primaries_system_identifier"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("primaries")
