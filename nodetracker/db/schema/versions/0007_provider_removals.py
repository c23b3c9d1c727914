"""Add the providers in placement that are to be deleted with their nodes."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_JSON = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "provider_removals",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("provider_uuid", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("workloads", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("lease_until", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_provider_removals"),
        **_MYSQL,
    )
    for column in ("provider_uuid", "host"):
        op.create_index(f"ix_provider_removals_{column}", "provider_removals", [column])


def downgrade() -> None:
    """Remove the table."""
    op.drop_table("provider_removals")
