"""Add the credentials of agents, and the tokens by which they get them."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
_HASHES = ("secret_hash", "next_hash", "previous_hash")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "join_tokens",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=True),
        sa.Column("uses", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_join_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_join_tokens_token_hash"),
        **_MYSQL,
    )
    op.create_table(
        "agent_credentials",
        sa.Column("id", _ID, nullable=False, autoincrement=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("agent_id", sa.String(64), nullable=False),
        *(sa.Column(name, sa.String(64), nullable=True) for name in _HASHES),
        sa.Column("issued_at", _TIME, nullable=False),
        sa.Column("used_at", _TIME, nullable=True),
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("revoked_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_agent_credentials"),
        sa.UniqueConstraint("host", name="uq_agent_credentials_host"),
        **_MYSQL,
    )
    for column in _HASHES:
        op.create_index(f"ix_agent_credentials_{column}", "agent_credentials", [column])


def downgrade() -> None:
    """Remove the tables."""
    op.drop_table("agent_credentials")
    op.drop_table("join_tokens")
